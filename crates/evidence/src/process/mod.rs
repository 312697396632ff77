//! The mappings of a process: named, counted by page size, with the reason for base pages.

mod machine;
mod measure;
mod model;
mod names;
mod reason_by_settings;
mod reason_words;
mod runtime;
mod shared_memory;
mod stacks;
mod summary;

use std::cell::OnceCell;

use hugewise_jvm::environment::Environment;
use hugewise_linux::{
    pages::folios::{self, FolioSelection},
    proc::{
        process::{Obstacle, Process, ProcessError},
        smaps::{self, Vma, VmaRange},
    },
    reading::Reading,
    root::Root,
    units::Bytes,
};

use self::{names::Naming, reason_words::Circumstances, runtime::Runtime};

pub use self::{
    machine::MachineState,
    measure::PartCounts,
    model::{Document, Failed, Inspected, InspectedRegion, Totals, huge, sum},
    names::{Kind, Part},
    reason_by_settings::Reason,
    shared_memory::SharedMemory,
    summary::RegionPages,
};

#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Attach to a JVM to query the names of its regions.
    pub attach: bool,
    /// Count partly mapped folios as well, which takes longer.
    pub full: bool,
    /// `MaxHeapSize`, which identifies the heap where the JVM's tables cannot be read; `None` if unknown.
    pub max_heap: Option<Bytes>,
}

/// Reads the regions of process `pid` and their pages. `shared` is the shared memory of the processes before it.
pub fn inspect(
    root: &Root,
    machine: &MachineState,
    pid: u32,
    options: Options,
    shared: &mut SharedMemory,
) -> Result<Inspected, ProcessError> {
    let process = Process::read(root, pid)?;
    let vmas = smaps::read_many(root, &pid.to_string()).map_err(|error| process.explain(root, &error))?;
    let wanted = if options.full { FolioSelection::All } else { FolioSelection::Whole };
    let folios = folios::read(root, pid, vmas.iter().map(VmaRange::from), &machine.sizes, wanted).into();
    let Survey { parts, source, notes, environment, runtime } =
        survey(root, machine, &process, &vmas, &folios, options);
    process.check_running(root)?;
    if vmas.is_empty() {
        let words = format!("{pid} ({}) has no mappings any more: it is ending", process.name);
        return Err(ProcessError { obstacle: Obstacle::Ended, words });
    }
    let is_jvm = hugewise_jvm::regions::has_libjvm(&vmas);
    let mut totals = Totals::default();
    for (_, counts) in &parts {
        totals.add(&counts.once(), machine);
        totals.suitable_bytes += counts.once().resident().saturating_sub(counts.unsuitable());
    }
    let counted_before = shared.add(root, machine, pid, &vmas);
    let known =
        Known { root, machine, process: &process, environment: &environment, runtime: runtime.as_ref() };
    let around = Circumstances { known, is_jvm, has_file_thp: OnceCell::new() };
    let regions =
        parts.into_iter().map(|(part, counts)| region(&around, part, &counts, &folios, options)).collect();
    let folio_sizes = folios.map(|_| true);
    let mut inspected = Inspected::new(process, is_jvm, source, totals, folio_sizes, Some(regions), notes);
    inspected.counted_before = counted_before;
    Ok(inspected)
}

/// What is known of a process before its mappings are named.
#[derive(Clone, Copy)]
struct Known<'a> {
    root: &'a Root,
    machine: &'a MachineState,
    process: &'a Process,
    environment: &'a Environment,
    runtime: Option<&'a Runtime>,
}

/// All mappings of a process, named and counted.
pub struct Survey {
    /// Sorted by address, without overlap; together they contain every mapping.
    pub parts: Vec<(Part, PartCounts)>,
    /// Source of the names.
    pub source: String,
    pub notes: Vec<String>,
    /// The variables with which the process was started.
    environment: Environment,
    /// The allocator or runtime in place of the C library's malloc.
    runtime: Option<Runtime>,
}

/// Names and counts the mappings `vmas` of a process.
pub fn survey(
    root: &Root,
    machine: &MachineState,
    process: &Process,
    vmas: &[Vma],
    folios: &Reading<Vec<folios::FolioRange>>,
    options: Options,
) -> Survey {
    let environment = Environment::read(root, process.pid);
    let runtime = Runtime::find(root, process.pid, vmas);
    let known = Known { root, machine, process, environment: &environment, runtime: runtime.as_ref() };
    let Naming { parts, source, mut notes } = names::name(&known, vmas, options);
    let (counts, note) = measure::measure(&known, vmas, &parts, folios);
    notes.extend(note);
    Survey { parts: parts.into_iter().zip(counts).collect(), source, notes, environment, runtime }
}

/// Reads the totals of process `pid` from `smaps_rollup`, without regions.
pub fn inspect_totals(root: &Root, machine: &MachineState, pid: u32) -> Result<Inspected, ProcessError> {
    let process = Process::read(root, pid)?;
    let path = format!("proc/{pid}/smaps_rollup");
    let text = root.read(&path).map_err(|error| process.explain(root, &error))?;
    let rollup = smaps::parse(&text).map_err(|(line, found)| {
        process.explain(root, &root.content(&path, line, "a sum over all mappings", &found))
    })?;
    process.check_running(root)?;
    let mut totals = Totals::default();
    for sums in &rollup {
        totals.resident_bytes += sums.rss + sums.hugetlb;
        totals.hugetlb_bytes += sums.hugetlb;
        totals.swapped_bytes += sums.swap;
        totals.on(machine.sizes.base, sums.rss.saturating_sub(sums.thp));
        if let Some(pmd) = machine.sizes.thp {
            totals.on(pmd, sums.thp);
        }
    }
    let unknown = Reading::unknown(format!(
        "folio sizes are read for single processes only: hugewise inspect {}",
        process.pid
    ));
    Ok(Inspected::new(process, false, "none".to_owned(), totals, unknown, None, Vec::new()))
}

fn region(
    around: &Circumstances<'_>,
    part: Part,
    counts: &PartCounts,
    folios: &Reading<Vec<folios::FolioRange>>,
    options: Options,
) -> InspectedRegion {
    let pages = &counts.pages;
    let words = counts.reason.map(|(reason, _)| reason_words::words(reason, part.kind, counts, around));
    let reason = counts.reason.map(|(judged, bytes)| (judged.reason, bytes));
    let (detail, actions) = words.map(|words| (words.detail, words.actions)).unzip();
    InspectedRegion {
        pages: RegionPages::new(
            part.name,
            part.addresses,
            pages,
            around.known.machine,
            reason,
            counts.unsuitable(),
        ),
        kind: part.kind,
        mappings: counts.mappings,
        swapped_bytes: pages.swap,
        split_bytes: folios.known().map(|_| pages.split),
        part_of_folio_bytes: folios.known().filter(|_| options.full).map(|_| pages.part_of_folio),
        counted_above_bytes: counts.counted_above,
        same_memory_as: counts.same_memory_as,
        candidates: counts.reason.map(|(judged, _)| judged.candidates()).unwrap_or_default(),
        detail,
        actions: actions.unwrap_or_default(),
    }
}
