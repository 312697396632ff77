//! Samples of the program that `run` started.

use std::{cell::RefCell, collections::BTreeMap, os::fd::AsFd, time::Duration};

use hugewise_evidence::process::{MachineState, Options, Survey, survey};
use hugewise_launch::proof::Taken;
use hugewise_linux::{
    hugepages::page_sizes::PageSizes,
    pages::occupancy::Occupancy,
    proc::{
        process,
        smaps::{self, Vma},
        tree,
    },
    reading::Reading,
    root::Root,
    sys::pidfd::Adviser,
    units::{Bytes, PageSize},
};
use hugewise_memory::collapse::{
    candidates,
    engine::{CollapseResult, Settings},
    live::{self, CollapseTarget},
    refusals::Refusal,
    suitable,
};

use super::{
    assignment::ObserverTask,
    regions::{self, Found, RunRegion},
    report::RunReport,
};
use crate::commands::collapse;

/// A sample of a program, and its time.
pub struct Kept {
    /// The process with most resident bytes.
    pub pid: u32,
    /// Since the start.
    pub at: Duration,
    pub resident: Bytes,
    pub found: Found,
}

/// The program whose memory is sampled.
pub(super) struct Process<'a> {
    pub(super) pid: u32,
    pub(super) root: &'a Root,
    pub(super) assignment: &'a ObserverTask,
    /// Whether each JVM took its options, which is read once.
    proofs: RefCell<BTreeMap<u32, Taken>>,
}

impl<'a> Process<'a> {
    pub(super) fn new(pid: u32, root: &'a Root, assignment: &'a ObserverTask) -> Process<'a> {
        Process { pid, root, assignment, proofs: RefCell::default() }
    }

    /// Forgets what was read before an exec.
    pub(super) fn forget(&self) {
        self.proofs.borrow_mut().clear();
    }

    /// The process with most resident bytes, and their number.
    pub(super) fn heaviest(&self) -> Option<(u32, Bytes)> {
        let resident = |pid: u32| {
            let text = self.root.read(format!("proc/{pid}/smaps_rollup")).ok()?;
            let all = smaps::parse(&text).ok()?;
            Some((pid, all.iter().map(|vma| vma.rss + vma.hugetlb).sum()))
        };
        self.tree().into_iter().filter_map(resident).max_by_key(|(_, resident): &(u32, Bytes)| *resident)
    }

    fn tree(&self) -> Vec<u32> {
        match self.assignment.behind_wrapper {
            true => tree::processes(self.root, self.pid),
            false => vec![self.pid],
        }
    }

    /// The heaps of the other JVMs that the program has started.
    fn heaps_of_others(&self, machine: &MachineState, pid: u32) -> Vec<(u32, RunRegion)> {
        let others = self.tree().into_iter().filter(|other| self.assignment.is_launcher() && *other != pid);
        let heap = |other: u32| {
            let sampled = self.read(machine, other).ok()?;
            Some((other, regions::heap_of_other(&sampled.survey, machine, other, self.assignment)?))
        };
        others.filter_map(heap).collect()
    }

    /// Samples the regions, after collapsing memory if the assignment requires it.
    pub(super) fn sample(&self, pid: u32, pidfd: &impl AsFd, report: &mut RunReport) -> anyhow::Result<()> {
        let machine = MachineState::read(self.root)?;
        let mut sampled = self.read(&machine, pid)?;
        // With a wrapper the pidfd may refer to another process.
        if let (true, Some(size), true) = (self.assignment.collapse, machine.pmd(), pid == self.pid) {
            let before = huge(&sampled.vmas);
            match self.collapse_outside_heap(&sampled, &machine.sizes, size, pidfd) {
                Ok(done) => {
                    report.collapse_seconds = done.lasted.as_secs_f64();
                    report.notes.extend(not_collapsed(&done, size));
                }
                Err(error) => report.notes.push(format!("cannot collapse off-heap memory: {error:#}")),
            }
            sampled = self.read(&machine, pid)?;
            report.collapsed_bytes = huge(&sampled.vmas).saturating_sub(before);
        }
        report.take(&self.found(&sampled.survey, &machine, pid));
        Ok(())
    }

    /// The regions of a process now.
    pub(super) fn regions(&self, pid: u32) -> anyhow::Result<Found> {
        let machine = MachineState::read(self.root)?;
        Ok(self.found(&self.read(&machine, pid)?.survey, &machine, pid))
    }

    fn found(&self, survey: &Survey, machine: &MachineState, pid: u32) -> Found {
        let mut regions = regions::regions(survey, machine, self.assignment);
        let others = self.heaps_of_others(machine, pid);
        let own = regions.iter().any(|region| region.pages.name == "heap").then_some(pid);
        let with_heap = own.into_iter().chain(others.iter().map(|(other, _)| *other));
        let jvms = with_heap.filter_map(|pid| Some((pid, self.proof(pid)?))).collect();
        regions.extend(others.into_iter().map(|(_, region)| region));
        let name = self.root.read(format!("proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned());
        Found { name, regions, jvms, huge_page: machine.pmd() }
    }

    /// Whether JVM `pid` took its options; `None` if none were passed.
    fn proof(&self, pid: u32) -> Option<Taken> {
        if let Some(known) = self.proofs.borrow().get(&pid) {
            return Some(known.clone());
        }
        let taken = self.assignment.passed.as_ref()?.taken_by(self.root, pid)?;
        self.proofs.borrow_mut().insert(pid, taken.clone());
        Some(taken)
    }

    fn read(&self, machine: &MachineState, pid: u32) -> anyhow::Result<MemorySample> {
        let process = process::Process::read(self.root, pid)?;
        let vmas = smaps::read(self.root, &pid.to_string())?;
        let folios = Reading::unknown("not needed here");
        let options = Options { max_heap: self.assignment.max_heap, ..Options::default() };
        let survey = survey(self.root, machine, &process, &vmas, &folios, options);
        Ok(MemorySample { process, vmas, survey })
    }

    /// Collapses dense memory outside of the heap, without reclaim or compaction.
    fn collapse_outside_heap(
        &self,
        sampled: &MemorySample,
        sizes: &PageSizes,
        size: PageSize,
        pidfd: &impl AsFd,
    ) -> anyhow::Result<CollapseResult> {
        let circumstances = collapse::candidates::circumstances(self.root, &sampled.process, size);
        let occupancy = Occupancy::open(self.root, self.pid, sizes.base, size)?;
        let mut all = Vec::new();
        let outside =
            sampled.survey.parts.iter().map(|(part, _)| part).filter(|part| regions::is_outside_heap(part));
        for part in outside {
            for vma in sampled.vmas.iter().filter(|vma| part.addresses.contains(&vma.addresses.start)) {
                if suitable::unsuitable(vma, &circumstances).is_none() {
                    let slots = occupancy.slots(&vma.addresses)?;
                    all.extend(candidates::choose(&slots, size, candidates::MIN_RESIDENT_PERCENT).candidates);
                }
            }
        }
        let adviser = Adviser::of(pidfd.as_fd().try_clone_to_owned()?.into());
        let target =
            CollapseTarget { root: self.root, pid: self.pid, adviser: &adviser, sizes, interrupt: None };
        let settings = Settings { size, rate: None, allow_reclaim: false };
        Ok(live::collapse_all(&target, &all, settings, &mut |_, _| {}))
    }
}

/// One sample of a process.
struct MemorySample {
    process: process::Process,
    vmas: Vec<Vma>,
    survey: Survey,
}

fn huge(vmas: &[Vma]) -> Bytes {
    vmas.iter().map(|vma| vma.thp).sum()
}

/// Amount that was not collapsed, with the reason; `None` if all memory was collapsed.
fn not_collapsed(done: &CollapseResult, size: PageSize) -> Option<String> {
    let left: Bytes = done.refusals.iter().map(Refusal::bytes).sum();
    let first = done.refusals.first()?;
    let reason = collapse::result::cause(done.outcome).unwrap_or_else(|| first.reason.words());
    let tried = done.collapsed * size + left;
    Some(format!("{left} of {tried} outside of the heap were not collapsed: {reason}"))
}
