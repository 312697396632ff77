//! The sources of a recording: those that are available, and why the others are not.

use std::{collections::BTreeMap, io, time::Duration};

use hugewise_changes::journal::{Journal, JournalError};
use hugewise_linux::{
    hugepages::{base_page, thp},
    proc::{pressure, process, taskstats::Channel, vmstat::VmStat},
    reading::{Reading, Reason},
    root::Root,
    settings::Setting,
    sys::process::monotonic_ns,
    tracefs::{self, Instance, Options, Tracefs, TracefsError},
    units::Bytes,
};

use super::{
    events::Events,
    model::{Evidence, Line},
};

/// Total initial size of the trace buffers of all CPUs.
const TOTAL_BUFFER_BYTES: Bytes = Bytes(64 << 20);
/// Limits of the initial buffer of one CPU, and limit of its growth, in KiB.
const MIN_BUFFER_KIB: u64 = 256;
const MAX_INITIAL_BUFFER_KIB: u64 = 2048;
const MAX_BUFFER_KIB: u64 = 16 << 10;
/// Longest and shortest interval at which the buffers are read.
const MAX_DRAIN_INTERVAL: Duration = Duration::from_millis(250);
const MIN_DRAIN_INTERVAL: Duration = Duration::from_millis(10);
/// Order of 2 MiB in base pages of 4 KiB, used if the kernel does not report the PMD size.
const DEFAULT_HUGE_ORDER: u32 = 9;

/// Reads kernel events from a tracing instance.
#[derive(Debug)]
pub struct Tracer {
    instance: Instance,
    events: Events,
    buffer_kib: u64,
    lost: u64,
    damaged: u64,
    /// Interval until the next read of the buffers.
    pub gap: Duration,
}

/// The available sources.
#[derive(Debug, Default)]
pub struct Sources {
    /// Kernel events.
    pub tracer: Option<Tracer>,
    /// Delay accounting by thread.
    pub delays: Option<Channel>,
    /// Reports of exiting threads.
    pub ends: Option<Channel>,
    /// Each kind of evidence with its source, or why it is missing.
    pub evidence: BTreeMap<Evidence, Reading<String>>,
    /// Names of the recorded events.
    pub events: Vec<String>,
}

impl Sources {
    /// Switches on all sources that are available, through the journal.
    pub fn provide(root: &Root, journal: Result<&mut Journal, &JournalError>) -> Sources {
        let mut means = Sources::default();
        let (delays, events) = match journal {
            Ok(journal) => (means.account(root, journal).into(), means.trace(root, journal).into()),
            Err(error) => {
                let reason = format!("{error}{}", error.next_step());
                (Reading::unknown(&reason), Reading::unknown(reason))
            }
        };
        let counters = VmStat::read(root).map(|_| "/proc/vmstat, of the whole machine".to_owned());
        let pressure = pressure::read(root).map(|_| "/proc/pressure/memory, of the whole machine".to_owned());
        means.evidence = BTreeMap::from([
            (Evidence::Delays, delays),
            (Evidence::Events, events),
            (Evidence::Ends, means.subscribe_exits(root).into()),
            (Evidence::Counters, counters.into()),
            (Evidence::Pressure, pressure.into()),
        ]);
        means
    }

    fn account(&mut self, root: &Root, journal: &mut Journal) -> Result<String, Reason> {
        let mut channel = open_taskstats()?;
        let was = Setting::TaskDelayacct.read(root)?;
        let reported = channel.thread(std::process::id()).map_err(needs_net_admin)?;
        if was != "1" {
            journal.set(Setting::TaskDelayacct, "1")?;
        }
        self.delays = Some(channel);
        let since = match was.as_str() {
            "1" => "was on".to_owned(),
            _ => format!("switched on at {} ns: threads that started before have no delays", monotonic_ns()),
        };
        Ok(format!("taskstats version {}; kernel.task_delayacct {since}", reported.version))
    }

    fn subscribe_exits(&mut self, root: &Root) -> Result<String, Reason> {
        let cpus = root.read("sys/devices/system/cpu/possible")?;
        let mut channel = open_taskstats()?;
        channel.subscribe_exits(&cpus).map_err(needs_net_admin)?;
        self.ends = Some(channel);
        Ok("taskstats reports the exit of each thread".to_owned())
    }

    fn trace(&mut self, root: &Root, journal: &mut Journal) -> Result<String, Reason> {
        Tracefs::check_pid_namespace(root)?;
        let tracefs = Tracefs::open(root)?;
        let mount = if tracefs.is_own_mount() {
            "; tracefs is mounted nowhere, and was mounted for this process alone"
        } else {
            ""
        };
        let id = std::process::id();
        journal.set(Setting::TraceInstance { id }, tracefs::PRESENT)?;
        let buffer_kib = buffer(root);
        let instance = Instance::open(tracefs, id, Options { buffer_kib })?;
        // An instance without PIDs records all threads, so a PID is set first.
        instance.follow(&[khugepaged(root).unwrap_or(id)])?;
        let (mut events, on, missing) = Events::switch_on(&instance, huge_order(root))?;
        if on.is_empty() {
            return Reason::err("this kernel has none of the required events");
        }
        events.ignore_thread(id);
        let without = match missing.as_slice() {
            [] => String::new(),
            missing => format!("; this kernel has no {}", missing.join(", ")),
        };
        let reported = format!(
            "instance {} with {buffer_kib} KiB for each of {} CPUs{without}{mount}",
            tracefs::name(id),
            instance.cpus()
        );
        self.events = on;
        self.tracer =
            Some(Tracer { instance, events, buffer_kib, lost: 0, damaged: 0, gap: MAX_DRAIN_INTERVAL });
        Ok(reported)
    }
}

impl Tracer {
    /// Records these threads and their future children from now on.
    pub fn follow(&self, tids: &[u32]) -> Result<(), TracefsError> {
        self.instance.follow(tids)
    }

    /// Records the children of this thread, which is a thread of the recorder and not recorded itself.
    pub fn follow_children_of(&mut self, tid: u32) -> Result<(), TracefsError> {
        self.events.ignore_thread(tid);
        self.follow(&[tid])
    }

    /// Reads the buffers; returns the lines up to now. With `last`, unfinished intervals are included.
    pub fn read(&mut self, last: bool) -> Result<Vec<Line>, TracefsError> {
        let before = monotonic_ns();
        let events = &mut self.events;
        let fullest = self.instance.drain(|_, page| events.page(page))?;
        let mut lines = self.events.until(if last { u64::MAX } else { before });
        if last {
            lines.extend(self.events.left_open());
        }
        let room = self.buffer_kib * 1024;
        if fullest > room / 4 {
            self.gap = (self.gap / 2).max(MIN_DRAIN_INTERVAL);
        } else {
            self.gap = (self.gap * 5 / 4).min(MAX_DRAIN_INTERVAL);
        }
        let may_grow = fullest > room / 2 && self.buffer_kib < MAX_BUFFER_KIB && !last;
        // Refused if memory is short: the size stays, and losses are recorded.
        if may_grow && self.instance.set_buffer(self.buffer_kib * 2).is_ok() {
            self.buffer_kib *= 2;
        }
        // Nothing was lost if there was room, and the query costs as much as a read.
        if last || fullest > room / 2 {
            lines.extend(self.losses());
        }
        Ok(lines)
    }

    /// Losses since the previous call.
    fn losses(&mut self) -> Vec<Line> {
        let mut lines = Vec::new();
        if let Ok(losses) = self.instance.losses() {
            if losses.events > self.lost {
                let reason = format!("the buffers of {} KiB per CPU were full", self.buffer_kib);
                lines.push(Line::lost(Evidence::Events, Some(losses.events - self.lost), reason));
                self.lost = losses.events;
            }
        }
        if self.events.damaged > self.damaged {
            let reason = format!("{} pages could not be read", self.events.damaged - self.damaged);
            lines.push(Line::lost(Evidence::Events, None, reason));
            self.damaged = self.events.damaged;
        }
        lines
    }

    /// Number of lost events; `None` if it is unknown.
    pub fn lost(&self) -> Option<u64> {
        (self.damaged == 0).then_some(self.lost)
    }
}

fn open_taskstats() -> Result<Channel, Reason> {
    Channel::open().map_err(|error| Reason::new(format!("taskstats: {error} (CONFIG_TASKSTATS)")))
}

fn needs_net_admin(error: io::Error) -> Reason {
    Reason::new(format!("taskstats: {error}; it needs CAP_NET_ADMIN"))
}

/// Initial buffer of each CPU in KiB; smaller on machines with many CPUs.
fn buffer(root: &Root) -> u64 {
    let cpus = root.list("sys/devices/system/cpu").unwrap_or_default();
    let is_cpu = |name: &&String| name.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok());
    let cpus = cpus.iter().filter(is_cpu).count().max(1) as u64;
    (TOTAL_BUFFER_BYTES.0 / 1024 / cpus).clamp(MIN_BUFFER_KIB, MAX_INITIAL_BUFFER_KIB)
}

/// The PMD size in base pages, as a power of two.
fn huge_order(root: &Root) -> u32 {
    let huge = thp::pmd_size(root);
    match (huge.known(), base_page::read(root).known()) {
        (Some(huge), Some(base)) => huge.log2().saturating_sub(base.log2()),
        _ => DEFAULT_HUGE_ORDER,
    }
}

/// PID of khugepaged.
fn khugepaged(root: &Root) -> Option<u32> {
    let is_it = |pid: &u32| {
        // A program can have the same name, but only kernel threads have no command line.
        root.read(format!("proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "khugepaged")
            && root.read_bytes(format!("proc/{pid}/cmdline")).is_ok_and(|line| line.is_empty())
    };
    process::all(root).ok()?.into_iter().find(is_it)
}
