//! Identity of a running JVM: its release and the current values of its flags.

use std::collections::HashMap;

use hugewise_linux::{
    proc::smaps::{self, Vma},
    reading::Reading,
    root::Root,
    units::Bytes,
};

use serde::{Deserialize, Serialize};

use super::{JvmIdentity, aside, is_libjvm, memory::ProcessMemory, vm_structs::Image};
use crate::collector::Collector;

const MAX_FLAGS: u64 = 10_000;

/// A JVM without any reading, for this reason.
pub(super) fn unknown(reason: &str) -> JvmIdentity {
    JvmIdentity {
        version: Reading::unknown(reason),
        collector: Reading::unknown(reason),
        max_heap: Reading::unknown(reason),
        large_pages: Reading::unknown(reason),
        transparent_huge_pages: Reading::unknown(reason),
    }
}

/// Identity of the JVM, by its tables.
pub(super) fn identify(image: &Image) -> JvmIdentity {
    let flags = Flags::read(image);
    let release = image.static_field("Abstract_VM_Version::_s_vm_release");
    let version = release.and_then(|text| image.memory.text(text)).filter(|text| !text.is_empty());
    let collector = Collector::selected(|flag| flags.is_set(flag) == Some(true));
    fn reading<T>(value: Option<T>, name: &str) -> Reading<T> {
        value.ok_or_else(|| format!("the tables of this JVM lack {name}")).into()
    }
    let switch = |name| reading(flags.is_set(name), name);
    JvmIdentity {
        version: reading(version, "its release"),
        collector: reading(collector, "a known collector"),
        max_heap: reading(flags.word("MaxHeapSize").map(Bytes), "MaxHeapSize"),
        large_pages: switch("UseLargePages"),
        transparent_huge_pages: switch("UseTransparentHugePages"),
    }
}

/// Whether the process has loaded HotSpot, whose tables it has in its memory. In a captured tree, which has no memory,
/// whether it has mapped a file with the name of its library. False if the process cannot be read.
pub fn is_hotspot(root: &Root, pid: u32) -> bool {
    let maps = root.read(format!("proc/{pid}/maps"));
    let Some(vmas) = maps.ok().and_then(|maps| smaps::parse(&maps).ok()) else { return false };
    let Some(library) = vmas.iter().find(|vma| is_libjvm(&vma.name)) else { return false };
    let has_tables = || Image::load(&ProcessMemory::of(root, pid, &vmas), library.addresses.start).is_ok();
    !root.is_live() || aside::answer(aside::READING_LIMIT, has_tables).unwrap_or(false)
}

/// Whether the flag of type `bool` is set in the JVM of process `pid`; `None` if that cannot be read.
pub(crate) fn flag_is_set(root: &Root, pid: u32, vmas: &[Vma], flag: &str) -> Option<bool> {
    with_flags(root, pid, vmas, |flags| flags.is_set(flag))
}

/// What `read` finds in the flags of the JVM of process `pid`; `None` if they cannot be read.
fn with_flags<T>(
    root: &Root,
    pid: u32,
    vmas: &[Vma],
    read: impl FnOnce(&Flags<'_>) -> Option<T>,
) -> Option<T> {
    let library = vmas.iter().find(|vma| is_libjvm(&vma.name)).filter(|_| root.is_live())?;
    let memory = ProcessMemory::of(root, pid, vmas);
    let image = Image::load(&memory, library.addresses.start).ok()?;
    read(&Flags::read(&image))
}

/// The flags of a running JVM that decide its pages, after it adjusted them to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageFlags {
    /// `UseLargePages`, which is also set with transparent huge pages.
    pub large_pages: bool,
    /// `UseTransparentHugePages`.
    pub transparent: bool,
}

/// The flags of the JVM of process `pid`; `None` if they cannot be read.
pub fn page_flags(root: &Root, pid: u32) -> Option<PageFlags> {
    let vmas = smaps::parse(&root.read(format!("proc/{pid}/maps")).ok()?).ok()?;
    let read = |flags: &Flags<'_>| {
        Some(PageFlags {
            large_pages: flags.is_set("UseLargePages")?,
            transparent: flags.is_set("UseTransparentHugePages")?,
        })
    };
    aside::answer(aside::READING_LIMIT, || with_flags(root, pid, &vmas, read)).ok()?
}

/// Flags of a running JVM, by the addresses of their values.
pub(super) struct Flags<'i> {
    image: &'i Image<'i>,
    values: HashMap<String, u64>,
}

impl<'i> Flags<'i> {
    pub(super) fn read(image: &'i Image<'i>) -> Flags<'i> {
        let mut values = HashMap::new();
        let _ = Flags::read_all(image, &mut values);
        Flags { image, values }
    }

    fn read_all(image: &Image, values: &mut HashMap<String, u64>) -> Option<()> {
        let first = image.static_field("JVMFlag::flags")?;
        let count = image.static_field("JVMFlag::numFlags")?.min(MAX_FLAGS);
        let size = image.size("JVMFlag")?;
        for index in 0..count {
            let flag = first.checked_add(index.checked_mul(size)?)?;
            let name = image.field(flag, "JVMFlag::_name")?;
            let value = image.field(flag, "JVMFlag::_addr")?;
            if let Some(name) = image.memory.text(name) {
                values.insert(name, value);
            }
        }
        Some(())
    }

    /// Value of a flag of type `bool`.
    pub(super) fn is_set(&self, name: &str) -> Option<bool> {
        Some(self.image.memory.byte(*self.values.get(name)?)? != 0)
    }

    /// Value of a flag of word size: `size_t`, `uintx`.
    pub(super) fn word(&self, name: &str) -> Option<u64> {
        self.image.memory.u64(*self.values.get(name)?)
    }
}
