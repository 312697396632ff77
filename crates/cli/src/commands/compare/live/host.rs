//! The process of a live comparison: its pages and its quantities.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail, ensure};
use hugewise_changes::journal::ProcessMemory;
use hugewise_evidence::process::MachineState;
use hugewise_linux::{
    hugepages::backing::Backing,
    interrupt::Interrupt,
    proc::process::Process,
    reading::{Reading, Reason},
    root::Root,
    sys::pidfd::{self, Adviser},
    units::{Bytes, PageSize},
};
use hugewise_measure::{
    comparison::live::Ending,
    live::{LiveProcess, Sample},
};
use hugewise_memory::{
    collapse::{
        admission::{self, GroupRoom},
        candidates::{Candidate, MIN_RESIDENT_PERCENT, Sum},
        engine::{CollapseOutcome, CollapseResult, Settings},
        live::{self, CollapseTarget},
    },
    split::{MAX_PASSES, judge},
};

use super::{source::MetricSource, values::ProcessValues};
use crate::{
    commands::{
        collapse::{
            self,
            candidates::{CollapseOptions, RegionSelection},
            missing_rights,
            result::cause,
        },
        split::candidates::{self as on_huge_pages, SplitSample},
    },
    output::terminal::plain,
};

/// Huge pages between two checks of the time that a transition takes.
const PAGES_PER_CHECK: usize = 128;
/// Longest wait between two checks for the end of the comparison.
const WAIT_STEP: Duration = Duration::from_millis(50);

/// How the pages of a process are moved.
#[derive(Clone, Copy, Debug)]
pub struct Moving {
    pub region: RegionSelection,
    pub allow_reclaim: bool,
    /// Limit of the time of one transition.
    pub max_transition: Duration,
}

/// The process of a live comparison.
pub struct LiveHost<'a> {
    root: &'a Root,
    machine: MachineState,
    pub process: Process,
    pub is_jvm: bool,
    size: PageSize,
    adviser: Adviser,
    /// `None` if the user cannot end the work.
    interrupt: Option<&'a Interrupt>,
    moving: Moving,
    /// The huge pages that the transitions move, by address.
    known: BTreeMap<u64, Candidate>,
    /// Those that were huge at the begin.
    found: BTreeSet<u64>,
    /// Why the memory cannot be moved; `None` if it can.
    pub refused: Option<String>,
    /// Zero-filled memory that the first split gave back.
    pub given_back: Option<Bytes>,
    source: MetricSource,
    pub values: ProcessValues,
    begin: Instant,
}

/// The pages to leave a process on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Leave {
    /// As it was found
    Found,
    /// All memory on huge pages
    Huge,
    /// All memory on base pages
    Base,
}

/// The pages that memory shall be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Base,
    Huge,
}

/// The pages whose memory is wanted so.
fn of(pages: Vec<Candidate>, wanted: &dyn Fn(u64) -> Option<Wanted>, so: Wanted) -> Vec<Candidate> {
    pages.into_iter().filter(|page| wanted(page.addresses.start) == Some(so)).collect()
}

/// The memory now.
struct Now {
    huge: SplitSample,
    dense: Vec<Candidate>,
}

impl<'a> LiveHost<'a> {
    /// Reads the process without changing it.
    pub fn open(
        root: &'a Root,
        pid: u32,
        moving: Moving,
        source: MetricSource,
        interrupt: Option<&'a Interrupt>,
    ) -> anyhow::Result<LiveHost<'a>> {
        // The pidfd is opened first: later readings are of this process, or it has ended.
        let pidfd = pidfd::open(pid);
        let process = Process::read(root, pid).map_err(|error| anyhow!(plain(&error.words)))?;
        let pidfd = pidfd.with_context(|| format!("cannot open process {pid} (pidfd_open)"))?;
        ensure!(pidfd::can_collapse(), "this kernel cannot collapse memory: MADV_COLLAPSE needs Linux 6.1");
        let refused = missing_rights(root, &process)
            .or_else(|| judge(pidfd::may_split(&pidfd)).err().map(|refused| refused.to_string()));
        let machine = MachineState::read(root)?;
        let size = machine.pmd().context("this kernel does not report the size of transparent huge pages")?;
        let mut host = LiveHost {
            root,
            machine,
            process,
            is_jvm: false,
            size,
            adviser: Adviser::of(pidfd),
            interrupt,
            moving,
            known: BTreeMap::new(),
            found: BTreeSet::new(),
            refused,
            given_back: None,
            source,
            values: ProcessValues::open(root, pid),
            begin: Instant::now(),
        };
        let now = match (host.read(), &host.refused) {
            // Missing privileges also prevent the reading.
            (Err(_), Some(refused)) => bail!("{refused}"),
            (now, _) => now,
        };
        ensure!(!host.has_ended(), "process {pid} ended before its memory was read");
        let now = now?;
        host.found = now.huge.pages().iter().map(|page| page.addresses.start).collect();
        host.learn(&now);
        Ok(host)
    }

    /// The huge pages that a transition moves.
    pub fn pages(&self) -> usize {
        self.known.len()
    }

    pub fn size(&self) -> PageSize {
        self.size
    }

    /// The pages of the process at the begin, for the journal.
    pub fn memory(&self, region: &str) -> ProcessMemory {
        let page = self.size.bytes().0;
        let mut huge: Vec<[u64; 2]> = Vec::new();
        for &start in &self.found {
            match huge.last_mut() {
                Some(last) if last[1] == start => last[1] += page,
                _ => huge.push([start, start + page]),
            }
        }
        ProcessMemory {
            pid: self.process.pid,
            started: self.process.started.unwrap_or_default(),
            region: region.to_owned(),
            huge,
        }
    }

    /// Locked memory is left out: once it is on huge pages, nothing puts it back.
    fn read(&mut self) -> anyhow::Result<Now> {
        let huge = self.on_huge_pages()?;
        self.is_jvm = huge.is_jvm;
        let region = self.moving.region;
        let (root, machine, process) = (self.root, &self.machine, &self.process);
        region.ensure_exists(huge.is_jvm, &format!("{} ({})", process.pid, plain(&process.name)))?;
        let options = CollapseOptions {
            region,
            rate: None,
            min_present: MIN_RESIDENT_PERCENT,
            allow_reclaim: self.moving.allow_reclaim,
            dry_run: false,
        };
        let seen = collapse::candidates::sample(root, machine, process, self.size, &options)?;
        let is_locked =
            |page: &Candidate| seen.locked.iter().any(|range| range.contains(&page.addresses.start));
        let dense = seen.candidates.iter().filter(|page| !is_locked(page)).cloned().collect();
        Ok(Now { huge, dense })
    }

    fn on_huge_pages(&self) -> anyhow::Result<SplitSample> {
        on_huge_pages::sample(self.root, &self.machine, &self.process, self.size, self.moving.region)
    }

    fn learn(&mut self, now: &Now) {
        for page in now.huge.pages().iter().chain(&now.dense) {
            self.known.entry(page.addresses.start).or_insert_with(|| page.clone());
        }
    }

    /// Puts each page of `now` and of those known on the pages that `wanted` returns for its address.
    fn arrange(&mut self, now: Now, wanted: &dyn Fn(u64) -> Option<Wanted>) -> anyhow::Result<()> {
        let begin = Instant::now();
        let on_huge: BTreeSet<u64> = now.huge.pages().iter().map(|page| page.addresses.start).collect();
        let resident: BTreeMap<u64, Bytes> =
            now.dense.iter().map(|page| (page.addresses.start, page.present)).collect();
        let is_to_collapse = |start| wanted(start) == Some(Wanted::Huge) && !on_huge.contains(&start);
        let collapse: Vec<Candidate> = self
            .known
            .values()
            .filter(|page| is_to_collapse(page.addresses.start))
            .map(|page| {
                // A range that is no longer dense may have no resident page.
                let present = resident.get(&page.addresses.start).copied().unwrap_or_default();
                Candidate { addresses: page.addresses.clone(), present }
            })
            .collect();
        self.split(now.huge, wanted, begin)?;
        let mut sum = Sum::default();
        collapse.iter().for_each(|page| sum.add(page.present));
        let room = Reading::from(live::room(self.root, self.machine.sizes.base, self.size));
        let group = GroupRoom::read(self.root, self.process.pid);
        admission::admit(sum, self.size, &room, &group, self.moving.allow_reclaim)?;
        let settings = Settings { size: self.size, rate: None, allow_reclaim: self.moving.allow_reclaim };
        self.in_pieces(&collapse, begin, |target, piece| {
            live::collapse_all(target, piece, settings, &mut |_, _| {})
        })
    }

    /// Puts the pages of `huge` that are wanted so on base pages.
    fn split(
        &mut self,
        huge: SplitSample,
        wanted: &dyn Fn(u64) -> Option<Wanted>,
        begin: Instant,
    ) -> anyhow::Result<()> {
        let mut pages = of(huge.pages(), wanted, Wanted::Base);
        for _ in 0..MAX_PASSES {
            if pages.is_empty() {
                break;
            }
            self.in_pieces(&pages, begin, |target, piece| {
                live::split_all(target, piece, self.size, None, &mut |_, _| {})
            })?;
            let after = self.on_huge_pages()?;
            if self.given_back.is_none() {
                self.given_back = Some(on_huge_pages::given_back(&after.occupancy, &pages)?);
            }
            pages = of(after.still_huge(&huge), wanted, Wanted::Base);
        }
        Ok(())
    }

    /// Changes `pages` piece by piece, until the transition takes too long.
    fn in_pieces(
        &self,
        pages: &[Candidate],
        begin: Instant,
        change: impl Fn(&CollapseTarget<'_>, &[Candidate]) -> CollapseResult,
    ) -> anyhow::Result<()> {
        let target = CollapseTarget {
            root: self.root,
            pid: self.process.pid,
            adviser: &self.adviser,
            sizes: &self.machine.sizes,
            interrupt: self.interrupt,
        };
        for piece in pages.chunks(PAGES_PER_CHECK) {
            ensure!(
                begin.elapsed() <= self.moving.max_transition,
                "a transition takes longer than {:.1} s (--max-transition)",
                self.moving.max_transition.as_secs_f64()
            );
            let done = change(&target, piece);
            match done.outcome {
                CollapseOutcome::Finished => {}
                // The engine reports these itself.
                CollapseOutcome::Interrupted | CollapseOutcome::ProcessEnded => return Ok(()),
                other => bail!("{}", cause(other).unwrap_or_default()),
            }
        }
        Ok(())
    }

    /// Leaves the process on these pages. Interrupts are ignored, and the time is not limited. An error if its pages
    /// are others afterwards.
    pub fn leave(&mut self, leave: Leave) -> anyhow::Result<()> {
        self.interrupt = None;
        self.moving.max_transition = Duration::MAX;
        // The names of regions may be unknown now. What was moved is known by its addresses.
        self.moving.region = RegionSelection::All;
        let found = std::mem::take(&mut self.found);
        let known: BTreeSet<u64> = self.known.keys().copied().collect();
        let wanted = |start| {
            let is_huge = match leave {
                Leave::Found => found.contains(&start),
                Leave::Huge => true,
                Leave::Base => false,
            };
            known.contains(&start).then_some(if is_huge { Wanted::Huge } else { Wanted::Base })
        };
        let left = self.read().and_then(|now| self.arrange(now, &wanted)).and_then(|()| {
            let now = self.read()?;
            let huge = of(now.huge.pages(), &wanted, Wanted::Base).len();
            ensure!(huge == 0, "{huge} huge pages could not be split");
            let base = of(now.dense, &wanted, Wanted::Huge).len();
            ensure!(base == 0 || leave != Leave::Found, "{base} ranges could not be collapsed again");
            Ok(())
        });
        if self.has_ended() { Ok(()) } else { left }
    }

    /// Whether the process has ended, or has released its memory, as it does at its end.
    pub fn has_ended(&self) -> bool {
        let sizes = self.root.read(format!("proc/{}/statm", self.process.pid)).unwrap_or_default();
        self.adviser.has_ended() || sizes.starts_with("0 ")
    }
}

impl LiveProcess for LiveHost<'_> {
    fn switch(&mut self, to: Backing) -> Result<(), Reason> {
        let wanted = if to == Backing::Base { Wanted::Base } else { Wanted::Huge };
        let arranged = self.read().and_then(|now| {
            self.learn(&now);
            self.arrange(now, &|_| Some(wanted))
        });
        arranged.map_err(|error| Reason::new(format!("{error:#}")))
    }

    /// Of the memory that can be on huge pages.
    fn coverage(&mut self) -> Result<f64, Reason> {
        let now = self.read().map_err(|error| Reason::new(format!("{error:#}")))?;
        let sum = |pages: &[Candidate]| pages.iter().map(|page| page.present).sum::<Bytes>();
        let huge = sum(&now.huge.pages());
        huge.share_of(huge + sum(&now.dense)).ok_or_else(|| Reason::new("no memory can be on huge pages now"))
    }

    fn sample(&mut self) -> Sample {
        let values = [self.source.read(), self.values.read(self.root).to_vec()].concat();
        Sample { at: self.now(), values }
    }

    fn must_end(&mut self) -> Option<Ending> {
        if self.interrupt.is_some_and(|interrupt| interrupt.signal().is_some()) {
            return Some(Ending::Interrupted);
        }
        self.has_ended().then_some(Ending::ProcessEnded)
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn wait(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.must_end().is_some() {
                return;
            }
            thread::sleep(left.min(WAIT_STEP));
            // Eden may be full several times between two samples.
            self.values.read_counters();
        }
    }
}

/// Puts the memory of a process back on the pages on which a killed comparison found it.
pub fn put_back(root: &Root, memory: &ProcessMemory) -> Result<(), Reason> {
    let put = || -> anyhow::Result<()> {
        let region = clap::ValueEnum::from_str(&memory.region, true).map_err(|error| anyhow!(error))?;
        let moving = Moving { region, allow_reclaim: false, max_transition: Duration::MAX };
        let mut host = LiveHost::open(root, memory.pid, moving, MetricSource::none(), None)?;
        if let Some(refused) = host.refused {
            bail!("{refused}");
        }
        ensure!(
            host.pages() > 0 || host.has_ended(),
            "its region '{}' has no memory for huge pages now, or the addresses are unknown: try it again",
            plain(&memory.region)
        );
        let page = host.size.bytes().0;
        let ranges = memory.huge.iter().filter(|[start, end]| start < end && start % page == 0);
        host.found = ranges.flat_map(|[start, end]| (*start..*end).step_by(page as usize)).collect();
        host.leave(Leave::Found)
    };
    put().map_err(|error| Reason::new(format!("{error:#}")))
}
