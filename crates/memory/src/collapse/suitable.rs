//! Selects the mappings that can be collapsed.

use hugewise_linux::{
    pages::reason::{self, Reason},
    proc::smaps::{Memory, Vma},
    units::PageSize,
};

/// The settings that hold for all mappings of a process.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// The PMD size.
    pub size: PageSize,
    /// The process, or a parent of it, switched THP off (`PR_SET_THP_DISABLE`).
    pub process_off: bool,
    /// `shmem_enabled` is `deny`: no huge pages for shared memory.
    pub shared_denied: bool,
}

/// The reason for which a mapping is skipped, as text after "skipped:".
#[must_use]
pub fn skipped_because(reason: Reason) -> &'static str {
    match reason {
        Reason::Pool => "on pages of a hugetlb pool",
        Reason::File => "file-backed: its pages are shared with every reader of the file",
        Reason::Kernel => "a mapping of the kernel",
        Reason::Stack => "the stack of the main thread, which grows by itself",
        Reason::NotAccessible => "reserved addresses without access",
        Reason::OffHere => "the program disabled huge pages for this region (MADV_NOHUGEPAGE)",
        Reason::OffByPrctl => "the process or a parent disabled THP (PR_SET_THP_DISABLE)",
        Reason::OffGlobally => "shared memory, and /sys/kernel/mm/transparent_hugepage/shmem_enabled is deny",
        Reason::TooSmall => "the mapping is smaller than a huge page",
        Reason::NotAligned => {
            "no aligned huge page fits into the mapping, or its file offset is not aligned like its address"
        }
        _ => "not suitable for huge pages",
    }
}

/// Why this mapping cannot be collapsed; `None` if it can. Other reports give the same reason for memory that
/// is not on huge pages.
#[must_use]
pub fn unsuitable(vma: &Vma, circumstances: &Circumstances) -> Option<Reason> {
    let memory = vma.memory();
    let denied = memory == Memory::Shared && circumstances.shared_denied;
    match memory {
        Memory::Pool => return Some(Reason::Pool),
        Memory::Anonymous | Memory::Shared if vma.permissions.starts_with("---") => {
            return Some(Reason::NotAccessible);
        }
        _ => {}
    }
    reason::of_mapping(vma, circumstances.process_off, circumstances.size)
        .or(denied.then_some(Reason::OffGlobally))
        .or((vma.name == "[stack]").then_some(Reason::Stack))
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use hugewise_linux::proc::smaps::ThpAdvice;

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
        let reported = |vma: &Vma| unsuitable(vma, &usual);
        assert_eq!(
            (reported(&heap), reported(&shared), reported(&vma("rwxp", "[anon: code]"))),
            (None, None, None)
        );
        for (vma, expected) in [
            (vma("r-xp", "/lib/libc.so.6"), Reason::File),
            (vma("r-xp", "[vdso]"), Reason::Kernel),
            (vma("rw-p", "[stack]"), Reason::Stack),
            (vma("---p", ""), Reason::NotAccessible),
            (Vma { is_hugetlb: true, ..heap.clone() }, Reason::Pool),
            (Vma { advice: ThpAdvice::NoHuge, ..heap.clone() }, Reason::OffHere),
            (Vma { addresses: 0x30_0000..0x5f_0000, ..heap.clone() }, Reason::NotAligned),
            (Vma { offset: 0x1000, ..shared.clone() }, Reason::NotAligned),
        ] {
            assert_eq!(reported(&vma), Some(expected), "{vma:?}");
        }
        let off = Circumstances { process_off: true, ..usual.clone() };
        assert_eq!(unsuitable(&heap, &off), Some(Reason::OffByPrctl));
        let denied = Circumstances { shared_denied: true, ..usual.clone() };
        assert_eq!(
            (unsuitable(&heap, &denied), unsuitable(&shared, &denied)),
            (None, Some(Reason::OffGlobally))
        );
        Ok(())
    }
}
