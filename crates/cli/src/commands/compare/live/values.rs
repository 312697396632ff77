//! The values that are read of the process.

use hugewise_jvm::{
    allocation::Allocation,
    performance_counters::{CounterFile, PerformanceCounters},
};
use hugewise_linux::{
    cpu::process_counters::{ProcessCounter, ProcessCounters},
    proc::{pressure, task_stat::TaskStat},
    reading::{Reading, Reason},
    root::Root,
    sys::process::ticks_per_second,
};

/// A value of the process, after the metrics of the user in a sample.
#[derive(Clone, Copy)]
pub enum ProcessValue {
    Cpu,
    Sys,
    MinorFaults,
    MajorFaults,
    Pressure,
    Gc,
    Safepoints,
    AllocatedGib,
    YoungCollections,
    Cycles,
    Instructions,
    PageWalkCycles,
}

/// Number of [`ProcessValue`]s.
pub const VALUES: usize = ProcessValue::PageWalkCycles as usize + 1;

/// Where the values are read.
pub struct ProcessValues {
    pid: u32,
    /// The file of the counters of a JVM.
    pub counters: Result<CounterFile, Reason>,
    pub allocation: Allocation,
    pub hardware: ProcessCounters,
}

impl ProcessValues {
    pub fn open(root: &Root, pid: u32) -> ProcessValues {
        ProcessValues {
            pid,
            counters: CounterFile::open(root, pid),
            allocation: Allocation::default(),
            hardware: ProcessCounters::open(root, pid),
        }
    }

    pub fn read(&mut self, root: &Root) -> [Option<f64>; VALUES] {
        use ProcessValue::*;

        let text = root.read(format!("proc/{}/stat", self.pid)).unwrap_or_default();
        let stat = TaskStat::parse(&text);
        let ticks = ticks_per_second() as f64;
        let pressure = pressure::read(root).ok();
        let counters = self.read_counters();
        let counters = counters.as_ref();
        let allocated = self.allocation.bytes as f64 / (1_u64 << 30) as f64;
        let young_collections = self.allocation.young_collections();
        let mut values = [None; VALUES];
        for (value, read) in [
            (Cpu, stat.map(|stat| (stat.user_ticks + stat.sys_ticks) as f64 / ticks)),
            (Sys, stat.map(|stat| stat.sys_ticks as f64 / ticks)),
            (MinorFaults, stat.map(|stat| stat.minor_faults as f64)),
            (MajorFaults, stat.map(|stat| stat.major_faults as f64)),
            (Pressure, pressure.map(|pressure| pressure.some.as_secs_f64())),
            (Gc, counters.and_then(PerformanceCounters::gc_seconds)),
            (Safepoints, counters.and_then(PerformanceCounters::safepoint_seconds)),
            (AllocatedGib, young_collections.map(|_| allocated)),
            (YoungCollections, young_collections.map(|collections| collections as f64)),
            (Cycles, events(&mut self.hardware.cycles)),
            (Instructions, events(&mut self.hardware.instructions)),
            (PageWalkCycles, events(&mut self.hardware.page_walk_cycles)),
        ] {
            values[value as usize] = read;
        }
        values
    }

    /// Reads the counters of a JVM, and adds what it allocated.
    pub fn read_counters(&mut self) -> Option<PerformanceCounters> {
        match self.counters.as_mut().ok()?.read() {
            Ok(counters) => {
                self.allocation.add(counters.as_ref()?);
                counters
            }
            // A file that was not read in time may hang; it would delay each sample.
            Err(reason) => {
                self.counters = Err(reason);
                None
            }
        }
    }
}

fn events(counter: &mut Reading<ProcessCounter>) -> Option<f64> {
    match counter {
        Reading::Known(counter) => counter.read().ok(),
        Reading::Unknown { .. } => None,
    }
}
