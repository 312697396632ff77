//! Assigns the regions of a JVM to the mappings of its process.
//!
//! Passive naming does not affect the process. It reads the JVM's memory through the tables for HotSpot's
//! serviceability agent (`gHotSpotVMStructs`), so it needs no tables of versions. Regions without an entry
//! there are found by pointers from the heap's description, and named by size. With attach, the JVM is
//! queried for its memory map, and its answer takes precedence. The memory read may be hostile or
//! half-written: all reads are bounded, and inconsistent data is ignored in favour of the next source.

mod answers;
mod aside;
mod attached;
mod claims;
mod elf_symbols;
mod heap;
pub(crate) mod jvm;
mod known;
mod memory;
mod metaspace;
mod native;
mod reserved;
mod stacks;
mod vm_structs;

use std::fmt;

use hugewise_linux::{proc::smaps::Vma, reading::Reading, root::Root, units::Bytes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::jvm::{PageFlags, is_hotspot, page_flags};
pub use crate::collector::Collector;
use claims::Claims;
pub use heap::{Heap, HeapHints, HeapSource, locate as locate_heap};
use memory::{Memory, ProcessMemory};
use vm_structs::Image;

/// Purpose of a JVM's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RegionKind {
    /// Java objects.
    Heap,
    /// Compiled and generated code, and the segment maps over it.
    CodeCache,
    /// The collector's tables outside of the heap, such as card tables and mark bitmaps.
    GcTable,
    /// Class metadata outside of the class space.
    Metaspace,
    /// Class metadata in reach of compressed class pointers.
    ClassSpace,
    /// Classes and objects mapped from an archive.
    Cds,
    /// Stacks of threads, their guard pages included.
    ThreadStack,
    /// Malloc'd memory: the JVM's own structures, direct buffers, native libraries.
    Malloc,
    /// Other memory of the JVM: polling page, performance counters.
    Internal,
    /// Files, libraries and memory of unknown purpose.
    Other,
}

impl fmt::Display for RegionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RegionKind::Heap => "heap",
            RegionKind::CodeCache => "code cache",
            RegionKind::GcTable => "gc table",
            RegionKind::Metaspace => "metaspace",
            RegionKind::ClassSpace => "class space",
            RegionKind::Cds => "CDS archive",
            RegionKind::ThreadStack => "thread stack",
            RegionKind::Malloc => "malloc",
            RegionKind::Internal => "jvm",
            RegionKind::Other => "other",
        })
    }
}

/// An address range with one purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedRange {
    /// First address.
    pub start: u64,
    /// First address after the range.
    pub end: u64,
    /// `heap`, `code cache: non-nmethods`, `card table`, `thread stack (main)`, `libc.so.6` …
    pub name: String,
    /// Its purpose.
    pub kind: RegionKind,
}

/// Source of the names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The JVM answered these commands; other names are passive.
    Attached {
        /// `System.map`, `VM.native_memory detail`, `VM.info`.
        commands: Vec<String>,
    },
    /// Passive naming.
    Passive {
        /// Whether the JVM's own tables were read; otherwise names follow from addresses and sizes.
        tables: bool,
    },
    /// The process is not a HotSpot JVM, with the reason.
    NotAJvm(String),
}

/// Identity of a JVM, from its own tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JvmIdentity {
    /// `17.0.15+6-Debian-1`, the release of the VM.
    pub version: Reading<String>,
    /// Its collector.
    pub collector: Reading<Collector>,
    /// `MaxHeapSize`, rounded by the JVM.
    pub max_heap: Reading<Bytes>,
    /// `UseLargePages` after the JVM adjusted it to the machine.
    pub large_pages: Reading<bool>,
    /// `UseTransparentHugePages` after the JVM adjusted it to the machine.
    pub transparent_huge_pages: Reading<bool>,
}

/// Names of the memory of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Naming {
    /// Sorted and without overlap; a range may be a part of a mapping or span several.
    pub ranges: Vec<NamedRange>,
    pub source: Source,
    /// `None` if the process is not a JVM.
    pub jvm: Option<JvmIdentity>,
    /// Failed readings, with reasons.
    pub notes: Vec<String>,
}

impl Naming {
    /// The range that contains `address`.
    pub fn at(&self, address: u64) -> Option<&NamedRange> {
        range_at(&self.ranges, address)
    }
}

/// The range that contains `address`. `ranges` are sorted and do not overlap.
fn range_at(ranges: &[NamedRange], address: u64) -> Option<&NamedRange> {
    let behind = ranges.partition_point(|range| range.start <= address);
    ranges.get(behind.checked_sub(1)?).filter(|range| address < range.end)
}

/// Names the mappings of process `pid`; `vmas` are those of `smaps`.
///
/// Naming is passive unless `attach` is set. Attaching needs the JVM's user or root; if it fails, the notes
/// have the reason and the passive names are used. `max_heap`, if known, identifies the heap where the JVM's
/// tables cannot be read.
///
/// Memory that does not answer within seconds, as on a file system that hangs, is not read: then names follow from the
/// addresses.
pub fn name(root: &Root, pid: u32, vmas: &[Vma], attach: bool, max_heap: Option<Bytes>) -> Naming {
    let without_memory = |note: String| passive(None, vmas, &[], max_heap, vec![note]);
    if !root.is_live() {
        let threads = stacks::threads(root, pid);
        let note = "a captured tree has no process memory: names follow from the addresses of the mappings";
        return passive(None, vmas, &threads, max_heap, vec![note.to_owned()]);
    }
    let named = aside::answer(aside::READING_LIMIT, || {
        let memory = ProcessMemory::of(root, pid, vmas);
        passive(Some(&memory), vmas, &stacks::threads(root, pid), max_heap, Vec::new())
    });
    let mut naming = named.unwrap_or_else(|reason| {
        without_memory(format!("the memory of process {pid} could not be read: {reason}"))
    });
    if !attach {
        return naming;
    }
    if naming.jvm.is_none() {
        naming.notes.push("not attached: the process is not a HotSpot JVM".to_owned());
        return naming;
    }
    let refined = aside::answer(attached::LIMIT, || {
        let mut refined = naming.clone();
        attached::refine(root, pid, vmas, &mut refined);
        refined
    });
    refined.unwrap_or_else(|reason| {
        naming.notes.push(format!("attaching to process {pid}: {reason}"));
        naming
    })
}

/// Passive names.
fn passive(
    memory: Option<&dyn Memory>,
    vmas: &[Vma],
    threads: &[stacks::Thread],
    max_heap: Option<Bytes>,
    mut notes: Vec<String>,
) -> Naming {
    let mut claims = Claims::over(vmas);
    let library = vmas.iter().find(|vma| is_libjvm(&vma.name));
    let image = match (library, memory) {
        (Some(library), Some(memory)) => Some(Image::load(memory, library.addresses.start)),
        _ => None,
    };
    let not_a_jvm = |reason: &str| (Source::NotAJvm(reason.to_owned()), None);
    let passive = |tables, jvm| (Source::Passive { tables }, Some(jvm));
    let mut metaspace_known = false;
    let (source, identity) = match (&image, library) {
        (_, None) => not_a_jvm("libjvm.so is not among its mappings"),
        (Some(Err(vm_structs::LoadError::NotHotSpot)), _) => {
            not_a_jvm("its libjvm.so has no gHotSpotVMStructs: it is not a HotSpot JVM")
        }
        (Some(Err(vm_structs::LoadError::Unreadable(reason))), _) => {
            notes.push(format!(
                "the tables of the JVM could not be read: {reason}; regions are named by address and size"
            ));
            passive(false, jvm::unknown(reason))
        }
        (None, _) => passive(false, jvm::unknown("the memory of the process cannot be read")),
        (Some(Ok(image)), _) => {
            let jvm = jvm::identify(image);
            metaspace_known = known::claim(image, &jvm, &mut claims, &mut notes);
            passive(true, jvm)
        }
    };
    if identity.is_some() {
        native::claim_by_place(source == Source::Passive { tables: true }, max_heap, &mut claims);
    }
    stacks::claim(memory, threads, &mut claims);
    if let Some(memory) = memory {
        native::claim_malloc(memory, &mut claims);
    }
    if let (Some(Ok(image)), Some(jvm)) = (&image, &identity) {
        reserved::claim(image, jvm, threads, metaspace_known, &mut claims, &mut notes);
    }
    native::claim_rest(&mut claims);
    Naming { ranges: claims.into_ranges(), source, jvm: identity, notes }
}

/// Whether these mappings include libjvm.so.
pub fn has_libjvm(vmas: &[Vma]) -> bool {
    vmas.iter().any(|vma| is_libjvm(&vma.name))
}

fn is_libjvm(name: &str) -> bool {
    name.trim_end_matches(" (deleted)").ends_with("/libjvm.so")
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use proptest::prelude::*;

    use super::{memory::fake::FakeMemory, *};

    const MAPPINGS: &str = "\
c0000000-f0000000 rw-p 00000000 00:00 0
f0000000-100000000 ---p 00000000 00:00 0
5580b322c000-5580b3275000 rw-p 00000000 00:00 0                          [heap]
7fa0a5400000-7fa0a5670000 rwxp 00000000 00:00 0
7fa0b0000000-7fa0b0001000 r--p 00000000 fe:00 1                          /opt/a/lib/server/libjvm.so (deleted)
7fa0b0001000-7fa0b0002000 rw-p 00000000 fe:00 1                          /opt/a/lib/server/libjvm.so (deleted)
7fa0b0002000-7fa0b0003000 rw-p 00000000 00:00 0
7fa0b8000000-7fa0b8001000 rw-p 00000000 00:00 0
7fa0c0000000-7fa0c0001000 rw-s 00000000 00:0f 7                          /tmp/hsperfdata_a/7
7ffcd120d000-7ffcd122e000 rw-p 00000000 00:00 0                          [stack]
";

    fn vmas() -> Vec<Vma> {
        hugewise_linux::proc::smaps::parse(MAPPINGS).unwrap_or_default()
    }

    #[test]
    fn without_memory_the_mappings_name_the_regions() -> Result<(), Box<dyn Error>> {
        let naming = passive(None, &vmas(), &[], None, Vec::new());
        assert_eq!(naming.source, Source::Passive { tables: false });
        assert!(naming.jvm.as_ref().is_some_and(|jvm| jvm.collector.known().is_none()));
        let named = |address| naming.at(address).map(|range| (range.name.as_str(), range.kind));
        for (address, name, kind) in [
            (0xc000_0000, "heap", RegionKind::Heap),
            (0xffff_ffff, "heap", RegionKind::Heap),
            (0x5580_b322_c000, "malloc (main arena)", RegionKind::Malloc),
            (0x7fa0_a540_0000, "code cache", RegionKind::CodeCache),
            (0x7fa0_b000_2000, "libjvm.so", RegionKind::Other),
            (0x7fa0_b800_0000, "anonymous", RegionKind::Other),
            (0x7fa0_c000_0000, "performance counters", RegionKind::Internal),
            (0x7ffc_d120_d000, "thread stack (first)", RegionKind::ThreadStack),
        ] {
            assert_eq!(named(address), Some((name, kind)), "{address:#x}");
        }
        assert_eq!(named(0x1_0000_0000), None);
        Ok(())
    }

    #[test]
    fn without_tables_the_maximum_size_identifies_a_heap_at_any_address() {
        let mut vmas = vmas();
        vmas.retain(|vma| vma.addresses.start >= 1 << 32);
        let heap = 0x7f00_0000_0000..0x7f00_1000_0000;
        vmas.push(Vma { addresses: heap.clone(), permissions: "rw-p".to_owned(), ..Vma::default() });
        vmas.sort_by_key(|vma| vma.addresses.start);
        let named = |max_heap| {
            let naming = passive(None, &vmas, &[], max_heap, Vec::new());
            naming.at(heap.start).map(|range| range.kind)
        };
        assert_eq!(named(Some(Bytes(256 << 20))), Some(RegionKind::Heap));
        assert_eq!(named(None), Some(RegionKind::Other));
    }

    #[test]
    fn a_libjvm_without_tables_is_no_hotspot() {
        let mut memory = FakeMemory::default();
        // An ELF header, one PT_LOAD, one PT_DYNAMIC with empty tables.
        let mut image = vec![0u8; 0x1000];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        image[32..40].copy_from_slice(&64u64.to_ne_bytes());
        image[54..56].copy_from_slice(&56u16.to_ne_bytes());
        image[56..58].copy_from_slice(&2u16.to_ne_bytes());
        image[64..68].copy_from_slice(&1u32.to_ne_bytes());
        image[120..124].copy_from_slice(&2u32.to_ne_bytes());
        image[136..144].copy_from_slice(&0x200u64.to_ne_bytes());
        for (index, word) in [5u64, 0x300, 6, 0x400, 0, 0].into_iter().enumerate() {
            image[0x200 + index * 8..0x208 + index * 8].copy_from_slice(&word.to_ne_bytes());
        }
        memory.0.insert(0x7fa0_b000_0000, image);
        let naming = passive(Some(&memory), &vmas(), &[], None, Vec::new());
        assert!(matches!(naming.source, Source::NotAJvm(_)), "{:?} {:?}", naming.source, naming.notes);
        assert!(naming.at(0xc000_0000).is_some());
    }

    proptest! {
        #[test]
        fn no_memory_makes_it_panic(
            pieces in prop::collection::vec((0usize..10, prop::collection::vec(any::<u64>(), 1..600)), 0..12),
        ) {
            let vmas = vmas();
            let mut memory = FakeMemory::default();
            for (index, words) in pieces {
                memory.words(vmas[index].addresses.start, &words);
            }
            let naming = passive(Some(&memory), &vmas, &[], None, Vec::new());
            prop_assert!(naming.ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }
    }
}
