//! The mappings of a process: named, counted by page size, with the reason for base pages.

mod machine;
mod measure;
mod model;
mod names;
mod reason_by_settings;
mod reason_words;
mod stacks;
mod summary;

use hugewise_linux::{
    pages::{
        folios::{self, FolioSelection},
        views,
    },
    proc::{
        process::{Obstacle, Process, ProcessError},
        smaps::{self, Vma, VmaRange},
    },
    reading::Reading,
    root::Root,
    units::Bytes,
};

pub use self::{
    machine::MachineState,
    measure::{MeasuredParts, PartCounts},
    model::{Document, Failed, Inspected, InspectedRegion, Totals, huge},
    names::{Kind, Naming, Part},
    reason_by_settings::Reason,
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

/// Reads the regions of process `pid` and their pages.
pub fn inspect(
    root: &Root,
    machine: &MachineState,
    pid: u32,
    options: Options,
) -> Result<Inspected, ProcessError> {
    let process = Process::read(root, pid)?;
    let vmas = smaps::read_many(root, &pid.to_string()).map_err(|error| process.explain(root, &error))?;
    let wanted = if options.full { FolioSelection::All } else { FolioSelection::Whole };
    let folios = folios::read(root, pid, vmas.iter().map(VmaRange::from), &machine.sizes, wanted).into();
    let Survey { naming, measured } = survey(root, machine, &process, &vmas, &folios, options);
    process.check_running(root)?;
    if vmas.is_empty() {
        let words = format!("{pid} ({}) has no mappings any more: it is ending", process.name);
        return Err(ProcessError { obstacle: Obstacle::Ended, words });
    }
    let mut notes = naming.notes;
    notes.extend(measured.notes);
    let is_jvm = hugewise_jvm::regions::has_libjvm(&vmas);
    let mut totals = Totals::default();
    measured.parts.iter().for_each(|part| totals.add(&part.once(), machine));
    let regions = naming.parts.into_iter().zip(measured.parts);
    let regions: Vec<InspectedRegion> = regions
        .map(|(part, measured)| region(machine, &process, part, &measured, &folios, options))
        .collect();
    Ok(Inspected::new(process, is_jvm, naming.source, totals, folios.map(|_| true), Some(regions), notes))
}

/// All mappings of a process, named and counted.
pub struct Survey {
    pub naming: Naming,
    pub measured: MeasuredParts,
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
    let naming = names::name(root, process, vmas, options);
    let views = views::find(root, process.pid, vmas);
    let measured = measure::measure(root, machine, process, vmas, &naming.parts, folios, &views);
    Survey { naming, measured }
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
    let unknown = Reading::unknown("folio sizes are read for single processes only: hugewise inspect PID");
    Ok(Inspected::new(process, false, "none".to_owned(), totals, unknown, None, Vec::new()))
}

fn region(
    machine: &MachineState,
    process: &Process,
    part: Part,
    measured: &PartCounts,
    folios: &Reading<Vec<folios::FolioRange>>,
    options: Options,
) -> InspectedRegion {
    let pages = &measured.pages;
    let words =
        measured.reason.map(|reason| reason_words::words(reason, &measured.evidence(process), machine));
    let reason = measured.reason.map(|judged| judged.reason);
    InspectedRegion {
        pages: RegionPages::new(part.name, part.addresses, pages, machine, reason),
        kind: part.kind,
        mappings: measured.mappings,
        swapped_bytes: pages.swap,
        split_bytes: folios.known().map(|_| pages.split),
        part_of_folio_bytes: folios.known().filter(|_| options.full).map(|_| pages.part_of_folio),
        counted_above_bytes: measured.counted_above,
        same_memory_as: measured.same_memory_as,
        candidates: measured.reason.map(reason_by_settings::ReasonWithCauses::candidates).unwrap_or_default(),
        detail: words.as_ref().map(|words| words.detail.clone()),
        actions: words.map(|words| words.actions).unwrap_or_default(),
    }
}
