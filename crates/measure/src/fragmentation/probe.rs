//! What a program that wants huge pages finds: how long each takes, and whether it is one.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    proc::{
        taskstats::{Channel, Delay, Delays},
        vmstat::VmStat,
    },
    reading::Reading,
    root::Root,
    sys::{parallel_range::Span, process::thread_id},
    units::{Bytes, Pages},
};
use hugewise_memory::region;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    execution::Launch,
    pretouch::worker::{WorkError, growth, share},
};

/// What was found, by one thread that asked for one huge page after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// Memory that was asked for, in bytes.
    pub bytes: Bytes,
    /// That in huge pages.
    pub pages: Pages,
    /// Share of it that was got on huge pages, 0 to 1.
    pub coverage: Reading<f64>,
    /// How long all of it took, in seconds.
    pub seconds: f64,
    /// The median of a huge page, or what was had in its place, in seconds.
    pub median_seconds: f64,
    /// One in a hundred took longer than this, in seconds.
    pub slowest_hundredth_seconds: f64,
    /// The longest, in seconds.
    pub worst_seconds: f64,
    /// How often and how long this thread waited for compaction, by the kernel's own account.
    pub compaction: Reading<Delay>,
    /// The same for direct reclaim.
    pub reclaim: Reading<Delay>,
    /// How often the kernel could not make a huge page meanwhile, on the whole machine.
    pub fallbacks: Reading<u64>,
    /// How often a thread had to compact or reclaim memory itself meanwhile, on the whole machine.
    pub stalls: Reading<u64>,
}

/// The command that does it in a process of its own, and prints a [`Probe`] as JSON.
#[must_use]
pub fn launch(program: &Path, bytes: Bytes) -> Launch {
    let command =
        vec![program.into(), "bench".into(), "stall-probe".into(), format!("--bytes={}", bytes.0).into()];
    Launch { command, ..Launch::default() }
}

/// Does it in this process.
pub fn run(bytes: Bytes) -> Result<Probe, WorkError> {
    let root = Root::live();
    let accounted = accounts(&root);
    // By a thread that begins now: the kernel accounts for those alone that began while that was on.
    let probing = thread::spawn(move || by_this_thread(bytes, &root, accounted)).join();
    probing.unwrap_or_else(|_| Err(WorkError::Incomplete(bytes, "a thread ended early".to_owned())))
}

fn by_this_thread(bytes: Bytes, root: &Root, accounted: Result<(), String>) -> Result<Probe, WorkError> {
    let sizes = PageSizes::read(root).map_err(WorkError::PageSizes)?;
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
        if let Err(error) = populated {
            return Err(WorkError::Incomplete(bytes, error.to_string()));
        }
    }
    let (fallbacks, stalls) = growth(&before, &VmStat::read(root));
    // Another recording may have switched it off meanwhile.
    let delays = Reading::from(accounted.and_then(|()| accounts(root))).and_then(|()| delays());
    let of = |take: fn(Delays) -> Option<Delay>| {
        delays.clone().and_then(|delays| take(delays).ok_or("this kernel does not account for it"))
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

/// Does the kernel account for what threads wait for, of those that begin now?
fn accounts(root: &Root) -> Result<(), String> {
    match root.value::<u8>("proc/sys/kernel/task_delayacct", "0 or 1") {
        Ok(1) => Ok(()),
        Ok(_) => Err("kernel.task_delayacct was 0, and switching it on takes root".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What this thread waited for.
fn delays() -> Result<Delays, String> {
    let told = Channel::open().and_then(|mut channel| channel.thread(thread_id()));
    told.map(|told| told.delays).map_err(|error| format!("taskstats: {error}; asking takes CAP_NET_ADMIN"))
}
