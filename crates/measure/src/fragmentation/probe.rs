//! The probe: the time to populate each huge page, and whether the kernel provides it.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{
    hugepages::backing::Backing,
    proc::{
        taskstats::{Channel, Delay, Delays},
        vmstat::VmStat,
    },
    reading::{Reading, Reason},
    root::Root,
    sys::{parallel_range::Span, process::thread_id},
    units::{Bytes, Pages, seconds},
};
use hugewise_memory::region;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    execution::Launch,
    pretouch::worker::{growth, incomplete, share},
    touch::page_sizes,
};

/// Result of one thread that populates one huge page after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// Memory to populate, in bytes.
    pub bytes: Bytes,
    /// Memory to populate, in huge pages.
    pub pages: Pages,
    /// Share of the memory on huge pages, 0 to 1.
    pub coverage: Reading<f64>,
    /// Total time of all pages, in seconds.
    pub seconds: f64,
    /// Median time of a huge page or of the base pages in its place, in seconds.
    pub median_seconds: f64,
    /// 99th percentile of these times, in seconds.
    pub slowest_hundredth_seconds: f64,
    /// Longest of these times, in seconds.
    pub worst_seconds: f64,
    /// Waits of this thread for compaction: count and duration, from delay accounting.
    pub compaction: Reading<Waits>,
    /// Waits of this thread for direct reclaim: count and duration, from delay accounting.
    pub reclaim: Reading<Waits>,
    /// Huge-page faults that fell back to base pages during that time, on the whole machine.
    pub fallbacks: Reading<u64>,
    /// Stalls in compaction or direct reclaim during that time, on the whole machine.
    pub stalls: Reading<u64>,
}

/// Waits of a thread for one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waits {
    /// Number of waits.
    pub count: u64,
    /// Total duration.
    pub seconds: f64,
}

/// The command of a process that runs the probe and prints a [`Probe`] as JSON.
pub fn launch(program: &Path, bytes: Bytes) -> Launch {
    Launch::worker(program, "stall-probe", &bytes)
}

/// Runs the probe in this process.
pub fn run(bytes: Bytes) -> Result<Probe, Reason> {
    let root = Root::live();
    let accounted = accounts(&root);
    // In a new thread: delay accounting covers only threads that started while it was on.
    let probing = thread::spawn(move || by_this_thread(bytes, &root, accounted)).join();
    probing.unwrap_or_else(|_| Err(incomplete(bytes, "a thread ended early")))
}

fn by_this_thread(bytes: Bytes, root: &Root, accounted: Result<(), Reason>) -> Result<Probe, Reason> {
    let sizes = page_sizes(root)?;
    let mut region = region::reserve(bytes, &[Backing::Thp], &sizes)?;
    let page = region.page_size();
    let count = usize::try_from(page.bytes().0).unwrap_or(usize::MAX);
    let before = VmStat::read(root);
    let mut times: Vec<Duration> = Vec::new();
    for part in region.bytes_mut().chunks_mut(count) {
        let span = Span::new(part);
        let begin = Instant::now();
        let populated = span.populate(span.addresses());
        times.push(begin.elapsed());
        populated.map_err(|error| incomplete(bytes, error))?;
    }
    let (fallbacks, stalls) = growth(&before, &VmStat::read(root));
    // Another recording may have switched it off in the meantime.
    let delays = Reading::from(accounted.and_then(|()| accounts(root))).and_then(|()| delays());
    let of = |take: fn(Delays) -> Option<Delay>| {
        delays.clone().and_then(|delays| {
            take(delays)
                .map(|delay| Waits { count: delay.count, seconds: seconds(delay.ns) })
                .ok_or("this kernel does not account for these waits")
        })
    };
    let all: Duration = times.iter().sum();
    times.sort_unstable();
    let quantile = |share: f64| {
        let at = (times.len().saturating_sub(1) as f64 * share).round() as usize;
        times.get(at).map_or(0.0, Duration::as_secs_f64)
    };
    Ok(Probe {
        bytes,
        pages: Pages(times.len() as u64),
        coverage: region.coverage().and_then(|coverage| share(&coverage)),
        seconds: all.as_secs_f64(),
        median_seconds: quantile(0.5),
        slowest_hundredth_seconds: quantile(0.99),
        worst_seconds: quantile(1.0),
        compaction: of(|delays| delays.compact),
        reclaim: of(|delays| Some(delays.reclaim)),
        fallbacks,
        stalls,
    })
}

/// Checks that delay accounting is on for threads that start now.
fn accounts(root: &Root) -> Result<(), Reason> {
    match root.value::<u8>("proc/sys/kernel/task_delayacct", "0 or 1")? {
        1 => Ok(()),
        _ => Reason::err("kernel.task_delayacct is 0: setting it to 1 needs root"),
    }
}

/// Waits of the calling thread.
fn delays() -> Result<Delays, Reason> {
    match Channel::open().and_then(|mut channel| channel.thread(thread_id())) {
        Ok(reported) => Ok(reported.delays),
        Err(error) => Reason::err(format!("taskstats: {error}; it needs CAP_NET_ADMIN")),
    }
}
