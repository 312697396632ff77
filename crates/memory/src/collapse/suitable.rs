//! Which mappings can be converted at all.

use hugewise_linux::{
    pages::occupancy,
    proc::smaps::{Advice, Memory, Vma},
    units::PageSize,
};
use schemars::JsonSchema;
use serde::Serialize;

/// What holds for all mappings of a process.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// The size of a whole THP.
    pub size: PageSize,
    /// Did the process give up THP (`PR_SET_THP_DISABLE`)?
    pub process_off: bool,
    /// Does the machine deny huge pages to shared memory (`shmem_enabled` is `deny`)?
    pub shared_denied: bool,
}

/// Why a mapping cannot be converted, or is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unsuitable {
    /// It is on pages of a pool.
    Pool,
    /// It is a file's.
    File,
    /// It is the kernel's own (`[vdso]` and the like).
    Kernel,
    /// It is the first thread's stack.
    Stack,
    /// Nobody may use these addresses.
    NotAccessible,
    /// The program advised against huge pages (`MADV_NOHUGEPAGE`).
    OffHere,
    /// The process, or a parent of it, gave up THP.
    OffByPrctl,
    /// `shmem_enabled` is `deny`.
    SharedDenied,
    /// No whole huge page lies in it.
    TooSmall,
    /// It shows its file at another offset than huge pages need.
    NotAligned,
}

impl Unsuitable {
    /// In words, behind "left out:".
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Unsuitable::Pool => "on pages of a hugetlb pool already",
            Unsuitable::File => "a file's: its pages are shared with everybody who reads the file",
            Unsuitable::Kernel => "the kernel's own",
            Unsuitable::Stack => "the stack of the first thread, which grows by itself",
            Unsuitable::NotAccessible => "set aside, not accessible",
            Unsuitable::OffHere => "the program advised against huge pages here (MADV_NOHUGEPAGE)",
            Unsuitable::OffByPrctl => "the process, or a parent of it, gave up THP (PR_SET_THP_DISABLE)",
            Unsuitable::SharedDenied => {
                "shared memory, and /sys/kernel/mm/transparent_hugepage/shmem_enabled is deny"
            }
            Unsuitable::TooSmall => "no whole huge page lies in the mapping",
            Unsuitable::NotAligned => "it shows its file at an offset that no huge page fits to",
        }
    }
}

/// Why this mapping cannot be converted; nothing where it can.
#[must_use]
pub fn unsuitable(vma: &Vma, circumstances: &Circumstances) -> Option<Unsuitable> {
    let page = circumstances.size.bytes().0;
    match vma.memory() {
        Memory::Pool => return Some(Unsuitable::Pool),
        Memory::File => return Some(Unsuitable::File),
        Memory::Kernel => return Some(Unsuitable::Kernel),
        Memory::Anonymous if vma.name == "[stack]" => return Some(Unsuitable::Stack),
        Memory::Anonymous | Memory::Shared => {}
    }
    if vma.permissions.starts_with("---") {
        return Some(Unsuitable::NotAccessible);
    }
    if occupancy::whole(&vma.addresses, circumstances.size).is_empty() {
        return Some(Unsuitable::TooSmall);
    }
    if circumstances.process_off {
        return Some(Unsuitable::OffByPrctl);
    }
    if vma.advice == Advice::NoHuge {
        return Some(Unsuitable::OffHere);
    }
    if vma.memory() == Memory::Shared {
        if circumstances.shared_denied {
            return Some(Unsuitable::SharedDenied);
        }
        if vma.addresses.start.wrapping_sub(vma.offset) % page != 0 {
            return Some(Unsuitable::NotAligned);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn each_kind_of_memory_has_its_answer() -> Result<(), Box<dyn Error>> {
        let usual = Circumstances { size: "2m".parse()?, process_off: false, shared_denied: false };
        let vma = |permissions: &str, name: &str| Vma {
            addresses: 0x40_0000..0x100_0000,
            permissions: permissions.to_owned(),
            name: name.to_owned(),
            ..Vma::default()
        };
        let (heap, shared) = (vma("rw-p", ""), vma("rw-s", "/memfd:java_heap (deleted)"));
        let told = |vma: &Vma| unsuitable(vma, &usual);
        assert_eq!((told(&heap), told(&shared), told(&vma("rwxp", "[anon: code]"))), (None, None, None));
        for (vma, expected) in [
            (vma("r-xp", "/lib/libc.so.6"), Unsuitable::File),
            (vma("r-xp", "[vdso]"), Unsuitable::Kernel),
            (vma("rw-p", "[stack]"), Unsuitable::Stack),
            (vma("---p", ""), Unsuitable::NotAccessible),
            (Vma { is_hugetlb: true, ..heap.clone() }, Unsuitable::Pool),
            (Vma { advice: Advice::NoHuge, ..heap.clone() }, Unsuitable::OffHere),
            (Vma { addresses: 0x30_0000..0x5f_0000, ..heap.clone() }, Unsuitable::TooSmall),
            (Vma { offset: 0x1000, ..shared.clone() }, Unsuitable::NotAligned),
        ] {
            assert_eq!(told(&vma), Some(expected), "{vma:?}");
        }
        let off = Circumstances { process_off: true, ..usual.clone() };
        assert_eq!(unsuitable(&heap, &off), Some(Unsuitable::OffByPrctl));
        let denied = Circumstances { shared_denied: true, ..usual.clone() };
        assert_eq!(
            (unsuitable(&heap, &denied), unsuitable(&shared, &denied)),
            (None, Some(Unsuitable::SharedDenied))
        );
        Ok(())
    }
}
