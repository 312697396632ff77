//! The lines of a recording, put in order.

use std::{collections::BTreeMap, io::Read};

use hugewise_jvm::threads::Role;

use super::{
    gathering::Gathering,
    intervals::Stall,
    log::{LogSource, Safepoint, Stop},
};
use crate::recording::{Ending, Evidence, Header, Memory, Process, Reader};

/// All of a recording.
#[derive(Debug)]
pub struct Gathered {
    /// Of what it is, and by what means.
    pub header: Header,
    /// How the file ends.
    pub ending: Option<Ending>,
    /// The last moment of which there is something in it.
    pub last_ns: u64,
    /// Processes that were seen, by their latest command line.
    pub processes: BTreeMap<u32, Process>,
    /// Threads that were seen.
    pub threads: Vec<Thread>,
    /// Waiting, thread by thread and in the order of its times.
    pub stalls: Vec<Vec<Stall>>,
    /// Waits without a begin or an end, which have no length.
    pub open_stalls: u64,
    /// Huge pages that threads asked for, in the order of the times.
    pub huge_pages: Vec<HugePageAt>,
    /// What threads did between two looks.
    pub steps: Vec<Step>,
    /// Pauses, in the order of their times.
    pub pauses: Vec<Stop>,
    /// Safepoints, in the order of their times.
    pub safepoints: Vec<Safepoint>,
    /// The logs that they are from.
    pub logs: Vec<LogSource>,
    /// The memory of processes over time.
    pub memory: Vec<Memory>,
    /// How much counters of the whole machine grew.
    pub machine: BTreeMap<String, u64>,
    /// What was lost: how many that could be counted, and whether some could not.
    pub lost: BTreeMap<Evidence, (u64, bool)>,
    /// Notes.
    pub notes: Vec<String>,
    /// Lines that could not be read, the first of them with the reason.
    pub unread: (u64, Option<String>),
}

/// A thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// That of its process, where it was seen.
    pub pid: Option<u32>,
    /// Its last name; nothing where it ended before it could be read.
    pub name: Option<String>,
    /// What it is for, if its process is a JVM.
    pub role: Role,
    /// What the kernel accounted it for direct compaction and reclaim, in nanoseconds; nothing where
    /// it accounted for nothing.
    pub accounted: Option<(u64, u64)>,
}

/// A thread asked for a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePageAt {
    /// When it was answered.
    pub ns: u64,
    /// Which thread, by its place among those that were gathered.
    pub thread: usize,
    /// Did it get the page?
    pub got: bool,
}

/// What a thread did between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Which thread, by its place among those that were gathered.
    pub thread: usize,
    /// From the look before, in nanoseconds of CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// To this look.
    pub to_ns: u64,
    /// CPU time in the kernel, by ticks.
    pub sys_ns: u64,
    /// Page faults that needed no I/O; of base pages and of huge ones.
    pub minor_faults: u64,
    /// Accounted for direct compaction.
    pub compaction_ns: u64,
    /// Accounted for direct reclaim.
    pub reclaim_ns: u64,
}

impl Gathered {
    /// Reads a recording to its end. A line that cannot be understood is counted.
    pub fn read<R: Read>(mut reader: Reader<R>) -> Gathered {
        let header = reader.header().clone();
        let mut gathering = Gathering::new(&header);
        let mut unread = (0, None);
        for line in reader.by_ref() {
            match line {
                Ok(line) => gathering.add(line),
                Err(error) => {
                    unread.0 += 1;
                    unread.1.get_or_insert_with(|| error.to_string());
                }
            }
        }
        gathering.end(header, reader.ending(), unread)
    }

    /// The thread's name, for people.
    #[must_use]
    pub fn name(&self, thread: usize) -> &str {
        self.threads.get(thread).and_then(|thread| thread.name.as_deref()).unwrap_or("?")
    }

    /// Is the thread one of the recorded processes? khugepaged, which works for all of them, is none.
    #[must_use]
    pub fn is_own(&self, thread: usize) -> bool {
        let pid = self.threads.get(thread).and_then(|thread| thread.pid);
        pid.is_none_or(|pid| self.processes.contains_key(&pid))
    }

    /// Is there evidence of this kind?
    #[must_use]
    pub fn has(&self, evidence: Evidence) -> bool {
        self.header.evidence.get(&evidence).is_some_and(|reading| reading.known().is_some())
    }

    /// From its begin to the last moment, in nanoseconds.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.header.began_ns)
    }
}
