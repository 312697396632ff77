//! The verdict on a recording.

use hugewise_jvm::{gc_log::CPU_TICK_NS, threads::Role};
use hugewise_linux::units;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::{
    gathered::RecordingData,
    intervals::{Wait, sum},
    split::Pause,
    totals::Totals,
};
use crate::recording::Evidence;

/// Shortest time that can decide a verdict, in nanoseconds.
const MIN_DECISIVE_NS: u64 = 10_000_000;
/// Least share of the total pause time that decides a verdict.
const MIN_SHARE_OF_ALL_PAUSES: f64 = 0.1;
/// Least share of a single pause, or of the time to safepoint in all pauses, that decides a verdict.
const MIN_SHARE_OF_ONE_PAUSE: f64 = 0.25;
/// Least wait for huge pages within one second, outside of pauses, that decides a verdict, in nanoseconds.
const MIN_WAIT_PER_SECOND_NS: u64 = 100_000_000;
/// Least share of the system time of pauses with sys > user that first touch must explain.
const MIN_SHARE_OF_SYSTEM_TIME: f64 = 0.5;
/// Least share of the pauses' CPU time at which first touch decides the verdict in any case.
const MIN_SHARE_OF_CPU_TIME: f64 = 0.25;
/// Least time to safepoint, or system time of a single pause, that decides a verdict, in nanoseconds: a JVM
/// rounds CPU times to 10 ms.
const LONG_PAUSE_NS: u64 = 50_000_000;
/// Least share of the recorded time that a cause must take, unless it takes [`LONG_PAUSE_NS`] of a single pause.
const MIN_SHARE_OF_RUN: f64 = 0.01;

/// Verdict on the cause of pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Threads waited for the kernel to allocate huge pages.
    Thp,
    /// Memory was touched for the first time within pauses.
    FirstTouch,
    /// Another cause.
    Other,
    /// The kernel had no significant part.
    None,
    /// The evidence does not suffice.
    Inconclusive,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub verdict: Verdict,
    pub because: VerdictReason,
}

/// Reason for the verdict. Times are in nanoseconds, in JSON in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum VerdictReason {
    /// Threads waited for huge pages in pauses or during the time to safepoint.
    HugePagesInPauses {
        /// Time with at least one waiting thread.
        #[serde(rename = "waiting_seconds", serialize_with = "in_seconds")]
        #[schemars(with = "f64")]
        ns: u64,
        /// Total duration of the pauses, including the time to safepoint.
        #[serde(rename = "paused_seconds", serialize_with = "in_seconds")]
        #[schemars(with = "f64")]
        of_ns: u64,
        /// Index of the pause with the longest such wait.
        #[serde(rename = "worst_pause")]
        worst: usize,
    },
    /// According to delay accounting, threads waited for compaction in pauses; for which page size is
    /// unknown.
    AccountedInPauses {
        /// Sum over all threads.
        #[serde(rename = "waiting_seconds", serialize_with = "in_seconds")]
        #[schemars(with = "f64")]
        ns: u64,
        /// Total duration of the pauses.
        #[serde(rename = "paused_seconds", serialize_with = "in_seconds")]
        #[schemars(with = "f64")]
        of_ns: u64,
    },
    /// A thread waited for huge pages outside of pauses.
    HugePagesOutside {
        /// Index into the list of waits outside of pauses.
        #[serde(rename = "outside_index")]
        outside: usize,
        /// Total wait for huge pages.
        #[serde(rename = "waiting_seconds", serialize_with = "in_seconds")]
        #[schemars(with = "f64")]
        ns: u64,
        /// Longest wait within one second.
        #[serde(rename = "worst_second_waiting_seconds", serialize_with = "in_seconds")]
        #[schemars(with = "f64")]
        worst_second_ns: u64,
    },
    /// First touch of pages took much of the collector's time.
    FirstTouch(TouchTime),
    /// First touch may have taken much of the collector's time, but its lower bound does not explain that time.
    FirstTouchPossible(TouchTime),
    /// Threads waited in pauses or during the time to safepoint, but not for huge pages.
    OtherWaiting {
        /// Time with at least one waiting thread.
        #[serde(rename = "waiting_seconds", serialize_with = "in_seconds")]
        #[schemars(with = "f64")]
        ns: u64,
        /// Total duration of the pauses, including the time to safepoint.
        #[serde(rename = "paused_seconds", serialize_with = "in_seconds")]
        #[schemars(with = "f64")]
        of_ns: u64,
        /// The kind of wait with the longest total duration.
        wait: Wait,
    },
    /// The kernel worked longer than the collector (sys > user).
    SystemTime {
        /// System time of these pauses.
        #[serde(rename = "system_seconds", serialize_with = "in_seconds")]
        #[schemars(with = "f64")]
        ns: u64,
        /// Lower bound of the part that no known cause explains; null if the cost of first touch is unknown.
        #[serde(rename = "unexplained_seconds", serialize_with = "in_seconds")]
        #[schemars(with = "Option<f64>")]
        unexplained_ns: Option<u64>,
    },
    /// The time to safepoint was long, and no thread waited for memory during it.
    TimeToSafepoint {
        /// Total time to safepoint.
        #[serde(rename = "time_to_safepoint_seconds", serialize_with = "in_seconds")]
        #[schemars(with = "f64")]
        ns: u64,
        /// Total duration of the pauses, including the time to safepoint.
        #[serde(rename = "paused_seconds", serialize_with = "in_seconds")]
        #[schemars(with = "f64")]
        of_ns: u64,
    },
    /// No cause was found.
    Nothing,
    /// Waits of threads were not recorded, and compaction or reclaim occurred on the machine.
    NoEvents,
    /// Events were lost, and the remaining ones explain nothing.
    Lost {
        /// Number of lost events that could be counted.
        #[serde(rename = "lost_events")]
        count: u64,
    },
    /// The recording is too large for the memory that it may take, and its kept part shows no cause.
    TooLarge {
        /// Number of lines, pauses, safepoints and threads in pauses that were not kept.
        #[serde(rename = "not_kept")]
        excess: u64,
    },
    /// The recording contains only its header.
    Empty,
    /// There is no log of the JVM, so that its pauses are unknown.
    NoLog,
}

/// Bounds of the time of first touch, including the zeroing of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TouchTime {
    /// Upper bound.
    #[serde(rename = "first_touch_seconds", serialize_with = "in_seconds")]
    #[schemars(with = "f64")]
    pub ns: u64,
    /// Lower bound; null if the cost of a page is unknown.
    #[serde(rename = "least_first_touch_seconds", serialize_with = "in_seconds")]
    #[schemars(with = "Option<f64>")]
    pub least_ns: Option<u64>,
    /// System time of the process in all pauses.
    #[serde(rename = "system_seconds", serialize_with = "in_seconds")]
    #[schemars(with = "f64")]
    pub system_ns: u64,
}

impl VerdictReason {
    /// The verdict that the reason stands for.
    fn verdict(&self) -> Verdict {
        use VerdictReason as Reason;
        match self {
            Reason::HugePagesInPauses { .. }
            | Reason::AccountedInPauses { .. }
            | Reason::HugePagesOutside { .. } => Verdict::Thp,
            Reason::FirstTouch(_) => Verdict::FirstTouch,
            Reason::FirstTouchPossible(_) => Verdict::Inconclusive,
            Reason::SystemTime { unexplained_ns: None, .. } => Verdict::Inconclusive,
            Reason::OtherWaiting { .. } | Reason::SystemTime { .. } | Reason::TimeToSafepoint { .. } => {
                Verdict::Other
            }
            Reason::Nothing => Verdict::None,
            Reason::NoEvents
            | Reason::Lost { .. }
            | Reason::TooLarge { .. }
            | Reason::Empty
            | Reason::NoLog => Verdict::Inconclusive,
        }
    }
}

/// Serialises nanoseconds as seconds, and `None` as null.
fn in_seconds<S: Serializer>(ns: &(impl Copy + Into<Option<u64>>), serializer: S) -> Result<S::Ok, S::Error> {
    let ns: Option<u64> = (*ns).into();
    ns.map(units::seconds).serialize(serializer)
}

/// The verdict on a recording, and its reason.
pub fn decide(gathered: &RecordingData, pauses: &[Pause], totals: &Totals) -> Decision {
    let because = (gathered.elapsed_ns() == 0)
        .then_some(VerdictReason::Empty)
        .or_else(|| thp(gathered, pauses, totals))
        .or_else(|| without_events(gathered, totals))
        .or_else(|| other_waiting(gathered, pauses, totals))
        .or_else(|| lost(gathered, totals))
        .or_else(|| too_large(gathered))
        .or_else(|| first_touch(gathered, pauses, totals))
        .or_else(|| system(gathered, pauses))
        .or_else(|| time_to_safepoint(totals))
        .or_else(|| no_log(gathered))
        .unwrap_or(VerdictReason::Nothing);
    Decision { verdict: because.verdict(), because }
}

/// Whether `ns` can decide a verdict: it is at least `share` of `of_ns`, and long enough.
fn matters(ns: u64, of_ns: u64, share: f64) -> bool {
    ns >= MIN_DECISIVE_NS && ns as f64 >= share * of_ns as f64
}

/// Whether a cause matters for the run: `times` are its times in each pause, in nanoseconds.
fn matters_for_run(gathered: &RecordingData, times: impl Iterator<Item = u64> + Clone) -> bool {
    times.clone().any(|ns| ns >= LONG_PAUSE_NS)
        || sum(times) as f64 >= MIN_SHARE_OF_RUN * gathered.elapsed_ns() as f64
}

fn thp(gathered: &RecordingData, pauses: &[Pause], totals: &Totals) -> Option<VerdictReason> {
    let held_up = |pause: &Pause| {
        let before = pause.time_to_safepoint.as_ref().map_or(0, |before| before.stalled_for_huge_ns);
        pause.stalled_for_huge_ns.unwrap_or(0).saturating_add(before)
    };
    let ns = totals.stalled_for_huge_ns.saturating_add(totals.time_to_safepoint_stalled_for_huge_ns);
    let of_ns = totals.paused_ns.saturating_add(totals.time_to_safepoint_ns);
    if let Some(worst) = (0..pauses.len()).max_by_key(|at| held_up(&pauses[*at])) {
        let (one_ns, of_one_ns) = (held_up(&pauses[worst]), pauses[worst].with_time_to_safepoint_ns());
        let decides =
            matters(ns, of_ns, MIN_SHARE_OF_ALL_PAUSES) || matters(one_ns, of_one_ns, MIN_SHARE_OF_ONE_PAUSE);
        if decides && matters_for_run(gathered, pauses.iter().map(held_up)) {
            return Some(VerdictReason::HugePagesInPauses { ns, of_ns, worst });
        }
    }
    let is_meant = |thread: usize| gathered.threads[thread].role != Role::Compiler && gathered.is_own(thread);
    let outside = (0..totals.outside.len())
        .filter(|at| is_meant(totals.outside[*at].thread))
        .max_by_key(|at| totals.outside[*at].worst_second_ns)?;
    let waiting = &totals.outside[outside];
    let (ns, worst_second_ns) = (waiting.sum.for_huge_ns, waiting.worst_second_ns);
    let because = VerdictReason::HugePagesOutside { outside, ns, worst_second_ns };
    (worst_second_ns >= MIN_WAIT_PER_SECOND_NS).then_some(because)
}

/// Without events, delay accounting shows the waits of threads; without delay accounting, the counters of
/// the machine can only rule out waits.
fn without_events(gathered: &RecordingData, totals: &Totals) -> Option<VerdictReason> {
    if gathered.has(Evidence::Events) {
        return None;
    }
    if let Some(sums) = &totals.accounted {
        let (ns, of_ns) = (totals.split.compaction_ns.unwrap_or(0), totals.paused_ns);
        if matters(ns, of_ns, MIN_SHARE_OF_ALL_PAUSES) {
            return Some(VerdictReason::AccountedInPauses { ns, of_ns });
        }
        if sum(sums.values().copied()) < MIN_DECISIVE_NS {
            return None;
        }
    }
    let waited = |name: &&String| name.as_str() == "compact_stall" || name.starts_with("allocstall_");
    let no_waits = gathered.machine.contains_key("compact_stall")
        && gathered.machine.keys().filter(waited).all(|name| gathered.machine[name] == 0);
    (!no_waits).then_some(VerdictReason::NoEvents)
}

fn other_waiting(gathered: &RecordingData, pauses: &[Pause], totals: &Totals) -> Option<VerdictReason> {
    let in_pauses = totals.stalled_ns.saturating_sub(totals.stalled_for_huge_ns);
    let before =
        totals.time_to_safepoint_stalled_ns.saturating_sub(totals.time_to_safepoint_stalled_for_huge_ns);
    let ns = in_pauses.saturating_add(before);
    let of_ns = totals.paused_ns.saturating_add(totals.time_to_safepoint_ns);
    let of = |wait: fn(&Pause) -> Option<u64>| sum(pauses.iter().filter_map(wait));
    let (compaction, reclaim) = (of(|pause| pause.split.compaction_ns), of(|pause| pause.split.reclaim_ns));
    let wait = if compaction > reclaim { Wait::Compaction } else { Wait::Reclaim };
    let of_pause = |pause: &Pause| {
        let before = pause.time_to_safepoint.as_ref().map_or(0, |before| before.stalled_ns);
        pause.stalled_ns.unwrap_or(0).saturating_add(before)
    };
    let decides =
        matters(ns, of_ns, MIN_SHARE_OF_ALL_PAUSES) && matters_for_run(gathered, pauses.iter().map(of_pause));
    decides.then_some(VerdictReason::OtherWaiting { ns, of_ns, wait })
}

/// Events were lost, and delay accounting does not show that the lost ones were insignificant.
fn lost(gathered: &RecordingData, totals: &Totals) -> Option<VerdictReason> {
    let (count, uncounted) = gathered.lost.get(&Evidence::Events).copied().unwrap_or_default();
    if count == 0 && !uncounted {
        return None;
    }
    let harmless =
        totals.accounted.as_ref().is_some_and(|sums| sum(sums.values().copied()) < MIN_DECISIVE_NS);
    (!harmless).then_some(VerdictReason::Lost { count })
}

fn too_large(gathered: &RecordingData) -> Option<VerdictReason> {
    let excess = gathered.room.excess;
    (excess > 0).then_some(VerdictReason::TooLarge { excess })
}

/// Time of first touch and zeroing, in nanoseconds.
fn touched(pause: &Pause) -> u64 {
    pause.split.zeroing_ns.unwrap_or(0).saturating_add(pause.split.first_touch_ns.unwrap_or(0))
}

fn system_ns(pause: &Pause) -> u64 {
    pause.stop.cpu.map_or(0, |cpu| cpu.sys_ns)
}

/// CPU time of all pauses, in nanoseconds.
fn cpu_ns(pauses: &[Pause]) -> u64 {
    let user = |pause: &Pause| pause.stop.cpu.map_or(0, |cpu| cpu.user_ns);
    sum(pauses.iter().map(user)).saturating_add(sum(pauses.iter().map(system_ns)))
}

/// The pauses with sys > user; empty if neither their sum nor a single one is significant.
fn sys_heavy<'a>(gathered: &RecordingData, pauses: &'a [Pause]) -> Vec<&'a Pause> {
    let sys_heavy: Vec<&Pause> = pauses.iter().filter(|pause| pause.sys_exceeds_user()).collect();
    let system = || sys_heavy.iter().map(|pause| system_ns(pause));
    let matter = sum(system()) as f64 >= MIN_SHARE_OF_ALL_PAUSES * cpu_ns(pauses) as f64
        || system().any(|ns| ns >= LONG_PAUSE_NS);
    if matter && matters_for_run(gathered, system()) { sys_heavy } else { Vec::new() }
}

/// First touch decides if its lower bound explains the system time of pauses with sys > user, or much of the
/// CPU time of all pauses; it may if only its upper bound explains that system time.
fn first_touch(gathered: &RecordingData, pauses: &[Pause], totals: &Totals) -> Option<VerdictReason> {
    let ns = sum(pauses.iter().map(touched));
    if ns < MIN_DECISIVE_NS || !matters_for_run(gathered, pauses.iter().map(touched)) {
        return None;
    }
    let least = |pauses: &mut dyn Iterator<Item = &Pause>| -> Option<u64> {
        pauses.map(|pause| pause.least_touch_ns).collect::<Option<Vec<u64>>>().map(|all| sum(all.into_iter()))
    };
    let sys_heavy = sys_heavy(gathered, pauses);
    let system = sum(sys_heavy.iter().map(|pause| system_ns(pause)));
    // Each logged time may be a tick too small, or too large.
    let ticks = |times: usize| CPU_TICK_NS.saturating_mul(times as u64);
    let explains = |touch_ns: u64, system_ns: u64| {
        !sys_heavy.is_empty() && touch_ns as f64 >= MIN_SHARE_OF_SYSTEM_TIME * system_ns as f64
    };
    let is_much = |touch_ns: u64| match cpu_ns(pauses) {
        0 => touch_ns as f64 >= MIN_SHARE_OF_SYSTEM_TIME * totals.paused_ns as f64,
        cpu => {
            let cpu = cpu.saturating_add(ticks(2 * pauses.len()));
            touch_ns >= MIN_DECISIVE_NS && touch_ns as f64 >= MIN_SHARE_OF_CPU_TIME * cpu as f64
        }
    };
    let least_of_heavy = least(&mut sys_heavy.iter().copied());
    let least_ns = least(&mut pauses.iter());
    let time = TouchTime { ns, least_ns, system_ns: sum(pauses.iter().map(system_ns)) };
    let matters = matters_for_run(gathered, pauses.iter().map(|pause| pause.least_touch_ns.unwrap_or(0)));
    let is_proven = least_of_heavy
        .is_some_and(|ns| explains(ns, system.saturating_add(ticks(sys_heavy.len()))))
        || least_ns.is_some_and(is_much);
    if is_proven && matters {
        return Some(VerdictReason::FirstTouch(time));
    }
    let touch_of_heavy = sum(sys_heavy.iter().map(|pause| touched(pause)));
    explains(touch_of_heavy, system.saturating_sub(ticks(sys_heavy.len())))
        .then_some(VerdictReason::FirstTouchPossible(time))
}

fn system(gathered: &RecordingData, pauses: &[Pause]) -> Option<VerdictReason> {
    let sys_heavy = sys_heavy(gathered, pauses);
    if sys_heavy.is_empty() {
        return None;
    }
    let ns = sum(sys_heavy.iter().map(|pause| system_ns(pause)));
    let unexplained: Option<Vec<u64>> = sys_heavy.iter().map(|pause| pause.split.other_system_ns).collect();
    let unexplained_ns = unexplained.map(|all| sum(all.into_iter()));
    Some(VerdictReason::SystemTime { ns, unexplained_ns })
}

fn time_to_safepoint(totals: &Totals) -> Option<VerdictReason> {
    let ns = totals.time_to_safepoint_ns;
    let of_ns = totals.paused_ns.saturating_add(ns);
    (ns >= LONG_PAUSE_NS && matters(ns, of_ns, MIN_SHARE_OF_ONE_PAUSE))
        .then_some(VerdictReason::TimeToSafepoint { ns, of_ns })
}

/// A JVM without a log has no known pauses.
fn no_log(gathered: &RecordingData) -> Option<VerdictReason> {
    let is_jvm = gathered.threads.iter().any(|thread| thread.role == Role::Collector);
    (gathered.logs.is_empty() && is_jvm).then_some(VerdictReason::NoLog)
}
