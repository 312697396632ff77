//! Which mapping of a running process is which region of its JVM.
//!
//! Passively, nothing is done to the process: its memory is read through the tables that every
//! HotSpot carries for its own serviceability agent (`gHotSpotVMStructs`), so that no table of
//! versions is needed. What the JVM keeps out of these tables is found by following pointers from
//! its heap's description, and named by its size. Attached, the JVM itself is asked for its map, and
//! what it answers wins. Every byte that is read may be hostile or half-written: all is bounded, and
//! what does not fit together is left to the next best way.

mod answers;
mod attached;
mod claims;
mod heap;
pub(crate) mod jvm;
mod known;
mod memory;
mod metaspace;
mod native;
mod reserved;
mod stacks;
mod symbols;
mod vm_structs;

use std::fmt;

use hugewise_linux::{proc::smaps::Vma, reading::Reading, root::Root, units::Bytes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::collector::Collector;
use claims::Claims;
pub use heap::{Heap, HeapHints, HeapSource, locate as locate_heap};
use memory::{Live, Memory};
use vm_structs::Image;

/// One purpose of a JVM's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Java objects.
    Heap,
    /// Compiled and generated code, and the segment maps over it.
    CodeCache,
    /// What the collector keeps beside the heap: card tables, mark bitmaps and the like.
    GcTable,
    /// What describes classes, outside the class space.
    Metaspace,
    /// Class descriptions that narrow class pointers reach.
    ClassSpace,
    /// Classes and objects mapped from an archive.
    Cds,
    /// Stacks of threads, their guard pages included.
    ThreadStack,
    /// The C library's allocator: the JVM's own structures, direct buffers, native libraries.
    Malloc,
    /// Other memory of the JVM itself: polling page, performance counters.
    Internal,
    /// Everything else: files, libraries, what nobody could name.
    Other,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Heap => "heap",
            Kind::CodeCache => "code cache",
            Kind::GcTable => "gc table",
            Kind::Metaspace => "metaspace",
            Kind::ClassSpace => "class space",
            Kind::Cds => "CDS archive",
            Kind::ThreadStack => "thread stack",
            Kind::Malloc => "malloc",
            Kind::Internal => "jvm",
            Kind::Other => "other",
        })
    }
}

/// A part of the address space with one purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedRange {
    /// The first address.
    pub start: u64,
    /// The address behind the last.
    pub end: u64,
    /// `heap`, `code cache: non-nmethods`, `card table`, `thread stack (main)`, `libc.so.6` …
    pub name: String,
    /// Its purpose.
    pub kind: Kind,
}

/// How the names were found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The JVM answered these commands; the rest was found passively.
    Attached {
        /// `System.map`, `VM.native_memory detail`, `VM.info`.
        commands: Vec<String>,
    },
    /// The process was only looked at.
    Passive {
        /// Could the JVM's own tables be read? If not, only the places of the mappings spoke.
        tables: bool,
    },
    /// No HotSpot was found in it, and why.
    NotAJvm(String),
}

/// Which JVM it is, by its own tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JvmIdentity {
    /// `17.0.15+6-Debian-1`, the release of the VM.
    pub version: Reading<String>,
    /// Its collector.
    pub collector: Reading<Collector>,
    /// `MaxHeapSize`, as the JVM rounded it.
    pub max_heap: Reading<Bytes>,
    /// `UseLargePages`, as the JVM left it after it looked at the machine.
    pub large_pages: Reading<bool>,
    /// `UseTransparentHugePages`, likewise.
    pub transparent_huge_pages: Reading<bool>,
}

/// The names of a process' memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Naming {
    /// Sorted, not overlapping, inside the mappings; one may be a part of a mapping or span several.
    pub ranges: Vec<NamedRange>,
    /// How they were found.
    pub source: Source,
    /// The JVM, where there is one.
    pub jvm: Option<JvmIdentity>,
    /// What could not be told, and why.
    pub notes: Vec<String>,
}

impl Naming {
    /// The range that holds `address`.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<&NamedRange> {
        range_at(&self.ranges, address)
    }
}

/// Of sorted ranges that do not overlap, the one that holds `address`.
fn range_at(ranges: &[NamedRange], address: u64) -> Option<&NamedRange> {
    let behind = ranges.partition_point(|range| range.start <= address);
    ranges.get(behind.checked_sub(1)?).filter(|range| address < range.end)
}

/// Names the mappings of process `pid`, which are `vmas` as `smaps` gave them.
///
/// Without `attach` nothing is done to the process. With it, the JVM is asked, which needs its user
/// or root; what fails is told in the notes, and the passive names stand.
#[must_use]
pub fn name(root: &Root, pid: u32, vmas: &[Vma], attach: bool) -> Naming {
    let mut notes = Vec::new();
    let live = root.is_live().then(|| Live::of(root, pid, vmas));
    let memory = live.as_ref().map(|live| live as &dyn Memory);
    if memory.is_none() {
        notes.push("a captured tree holds no memory: names come from the places of the mappings".to_owned());
    }
    let threads = stacks::threads(root, pid);
    let mut naming = passive(memory, vmas, &threads, notes);
    if attach && naming.jvm.is_some() {
        attached::refine(root, pid, vmas, &mut naming);
    } else if attach {
        naming.notes.push("nobody was asked: there is no HotSpot JVM to attach to".to_owned());
    }
    naming
}

/// The names that can be told by looking.
fn passive(
    memory: Option<&dyn Memory>,
    vmas: &[Vma],
    threads: &[stacks::Thread],
    mut notes: Vec<String>,
) -> Naming {
    let mut claims = Claims::over(vmas);
    let library = vmas.iter().find(|vma| is_libjvm(&vma.name));
    let image = match (library, memory) {
        (Some(library), Some(memory)) => Some(Image::load(memory, library.addresses.start)),
        _ => None,
    };
    let (mut source, mut identity) = (Source::Passive { tables: false }, None);
    let mut metaspace_known = false;
    match (&image, library) {
        (_, None) => source = Source::NotAJvm("libjvm.so is not among its mappings".to_owned()),
        (Some(Err(vm_structs::LoadError::NotHotSpot)), _) => {
            source = Source::NotAJvm("its libjvm.so has no gHotSpotVMStructs: it is no HotSpot".to_owned());
        }
        (Some(Err(vm_structs::LoadError::Unreadable(reason))), _) => {
            notes.push(format!(
                "the tables of the JVM could not be read: {reason}; regions are named by their places"
            ));
            identity = Some(jvm::unknown(reason));
        }
        (None, _) => identity = Some(jvm::unknown("the memory of the process cannot be read")),
        (Some(Ok(image)), _) => {
            source = Source::Passive { tables: true };
            let jvm = jvm::identify(image);
            metaspace_known = known::claim(image, &jvm, &mut claims, &mut notes);
            identity = Some(jvm);
        }
    }
    if identity.is_some() {
        native::claim_by_place(source == Source::Passive { tables: true }, &mut claims);
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

/// Has a process with these mappings the library of a HotSpot-like JVM in it?
#[must_use]
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

    use super::{memory::made::Made, *};

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
    fn where_nothing_can_be_read_the_places_speak() -> Result<(), Box<dyn Error>> {
        let naming = passive(None, &vmas(), &[], Vec::new());
        assert_eq!(naming.source, Source::Passive { tables: false });
        assert!(naming.jvm.as_ref().is_some_and(|jvm| jvm.collector.known().is_none()));
        let named = |address| naming.at(address).map(|range| (range.name.as_str(), range.kind));
        for (address, name, kind) in [
            (0xc000_0000, "heap", Kind::Heap),
            (0xffff_ffff, "heap", Kind::Heap),
            (0x5580_b322_c000, "malloc (main arena)", Kind::Malloc),
            (0x7fa0_a540_0000, "code cache", Kind::CodeCache),
            (0x7fa0_b000_2000, "libjvm.so", Kind::Other),
            (0x7fa0_b800_0000, "anonymous", Kind::Other),
            (0x7fa0_c000_0000, "performance counters", Kind::Internal),
            (0x7ffc_d120_d000, "thread stack (first)", Kind::ThreadStack),
        ] {
            assert_eq!(named(address), Some((name, kind)), "{address:#x}");
        }
        assert_eq!(named(0x1_0000_0000), None);
        Ok(())
    }

    #[test]
    fn a_libjvm_without_tables_is_no_hotspot() {
        let mut memory = Made::default();
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
        let naming = passive(Some(&memory), &vmas(), &[], Vec::new());
        assert!(matches!(naming.source, Source::NotAJvm(_)), "{:?} {:?}", naming.source, naming.notes);
        assert!(naming.at(0xc000_0000).is_some());
    }

    proptest! {
        #[test]
        fn no_memory_makes_it_panic(
            pieces in prop::collection::vec((0usize..10, prop::collection::vec(any::<u64>(), 1..600)), 0..12),
        ) {
            let vmas = vmas();
            let mut memory = Made::default();
            for (index, words) in pieces {
                memory.words(vmas[index].addresses.start, &words);
            }
            let naming = passive(Some(&memory), &vmas, &[], Vec::new());
            prop_assert!(naming.ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }
    }
}
