//! What a recording means.

use hugewise_jvm::threads::Role;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    gathered::Gathered,
    intervals::{Wait, sum},
    split::Explained,
    totals::Totals,
};
use crate::recording::Evidence;

/// What is less matters to nobody.
const LEAST_NS: u64 = 10_000_000;
/// So much of all pauses matters.
const OF_ALL: f64 = 0.1;
/// And so much of one pause.
const OF_ONE: f64 = 0.25;
/// A thread outside of pauses that waits for so much of a second does not answer.
const OF_A_SECOND_NS: u64 = 100_000_000;
/// What explains so much of the system time is its cause.
const OF_SYSTEM: f64 = 0.5;
/// First touch that takes so much of the pauses' CPU time matters, whatever the log suspects.
const OF_CPU: f64 = 0.25;
/// Reaching safepoints matters from here on, and the kernel's work in a single pause: a JVM rounds it to
/// 10 ms.
const LONG_NS: u64 = 50_000_000;

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Threads waited for the kernel to make huge pages.
    Thp,
    /// Memory was touched for the first time, in pauses.
    FirstTouch,
    /// Something else.
    Other,
    /// The kernel had no part in it that matters.
    None,
    /// The evidence does not suffice.
    CouldNotTell,
}

/// The answer, and what it rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The answer.
    pub verdict: Verdict,
    /// Why.
    pub because: Because,
}

/// Why. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Because {
    /// In pauses, or before they were reached, threads waited for huge pages.
    HugePagesInPauses {
        /// For so long at least one of them did.
        ns: u64,
        /// So long the pauses and reaching them took.
        of_ns: u64,
        /// The pause with most of it, by its place in the list of pauses.
        worst: usize,
    },
    /// In pauses, threads waited for compaction, by the kernel's accounting: for what size of pages is
    /// not known.
    AccountedInPauses {
        /// Time of threads.
        ns: u64,
        /// So long the pauses took.
        of_ns: u64,
    },
    /// A thread waited for huge pages outside of pauses.
    HugePagesOutside {
        /// Its place in the list of what lies outside.
        outside: usize,
        /// For how long in all.
        ns: u64,
        /// For how long of its worst second.
        worst_second_ns: u64,
    },
    /// The first touch of pages took the collector's time.
    Touch {
        /// With zeroing huge pages.
        ns: u64,
        /// System time of the process in all pauses.
        system_ns: u64,
    },
    /// In pauses, or before they were reached, threads waited for something else than huge pages.
    OtherWaiting {
        /// For so long at least one of them did.
        ns: u64,
        /// So long the pauses and reaching them took.
        of_ns: u64,
        /// For what mostly.
        wait: Wait,
    },
    /// The kernel worked longer than the collector.
    System {
        /// In such pauses.
        ns: u64,
        /// Of that, at least, for nothing that was looked for; nothing where it is not known what first
        /// touch costs.
        unexplained_ns: Option<u64>,
    },
    /// Reaching safepoints took long, and no thread waited for memory meanwhile.
    Reaching {
        /// So long.
        ns: u64,
        /// Of pauses and reaching them.
        of_ns: u64,
    },
    /// Nothing of all this.
    Nothing,
    /// Nobody looked at threads' waiting, and the machine compacted or reclaimed for somebody.
    NoEvents,
    /// Events were lost, and what is left explains nothing.
    Lost {
        /// How many that could be counted.
        count: u64,
    },
    /// There is nothing in it but what it is of.
    Empty,
    /// There is no log of the JVM, so nothing is known of its pauses.
    NoLog,
}

/// Decides.
#[must_use]
pub fn decide(gathered: &Gathered, pauses: &[Explained], totals: &Totals) -> Decision {
    let empty = Decision { verdict: Verdict::CouldNotTell, because: Because::Empty };
    let found = (gathered.elapsed_ns() == 0)
        .then_some(empty)
        .or_else(|| thp(gathered, pauses, totals))
        .or_else(|| without_events(gathered, totals))
        .or_else(|| other_waiting(pauses, totals))
        .or_else(|| lost(gathered, totals))
        .or_else(|| first_touch(pauses, totals))
        .or_else(|| system(pauses))
        .or_else(|| reaching(totals))
        .or_else(|| no_log(gathered));
    found.unwrap_or(Decision { verdict: Verdict::None, because: Because::Nothing })
}

fn thp(gathered: &Gathered, pauses: &[Explained], totals: &Totals) -> Option<Decision> {
    let held_up = |pause: &Explained| {
        let reaching = pause.reaching.as_ref().map_or(0, |reaching| reaching.stalled_for_huge_ns);
        pause.stalled_for_huge_ns.unwrap_or(0).saturating_add(reaching)
    };
    let ns = totals.stalled_for_huge_ns.saturating_add(totals.reaching_stalled_for_huge_ns);
    let of_ns = totals.paused_ns.saturating_add(totals.reaching_ns);
    let worst = (0..pauses.len()).max_by_key(|at| held_up(&pauses[*at]));
    let one = worst.map(|at| (held_up(&pauses[at]), pauses[at].with_reaching_ns()));
    let matters = |ns: u64, of_ns: u64, share: f64| ns >= LEAST_NS && ns as f64 >= share * of_ns as f64;
    if let Some(worst) = worst {
        if matters(ns, of_ns, OF_ALL) || one.is_some_and(|(ns, of_ns)| matters(ns, of_ns, OF_ONE)) {
            let because = Because::HugePagesInPauses { ns, of_ns, worst };
            return Some(Decision { verdict: Verdict::Thp, because });
        }
    }
    let is_meant = |thread: usize| gathered.threads[thread].role != Role::Compiler && gathered.is_own(thread);
    let outside = (0..totals.outside.len())
        .filter(|at| is_meant(totals.outside[*at].thread))
        .max_by_key(|at| totals.outside[*at].worst_second_ns)?;
    let waiting = &totals.outside[outside];
    (waiting.worst_second_ns >= OF_A_SECOND_NS).then_some(Decision {
        verdict: Verdict::Thp,
        because: Because::HugePagesOutside {
            outside,
            ns: waiting.sum.for_huge_ns,
            worst_second_ns: waiting.worst_second_ns,
        },
    })
}

/// Without events, the kernel's accounting tells how long threads waited; without that, too, only a
/// machine on which nobody waited can tell anything.
fn without_events(gathered: &Gathered, totals: &Totals) -> Option<Decision> {
    if gathered.has(Evidence::Events) {
        return None;
    }
    if let Some(sums) = &totals.accounted {
        let (ns, of_ns) = (totals.split.compaction_ns.unwrap_or(0), totals.paused_ns);
        if ns >= LEAST_NS && ns as f64 >= OF_ALL * of_ns as f64 {
            let because = Because::AccountedInPauses { ns, of_ns };
            return Some(Decision { verdict: Verdict::Thp, because });
        }
        if sum(sums.values().copied()) < LEAST_NS {
            return None;
        }
    }
    let waited = |name: &&String| name.as_str() == "compact_stall" || name.starts_with("allocstall_");
    let nobody = gathered.machine.contains_key("compact_stall")
        && gathered.machine.keys().filter(waited).all(|name| gathered.machine[name] == 0);
    (!nobody).then_some(Decision { verdict: Verdict::CouldNotTell, because: Because::NoEvents })
}

fn other_waiting(pauses: &[Explained], totals: &Totals) -> Option<Decision> {
    let in_pauses = totals.stalled_ns.saturating_sub(totals.stalled_for_huge_ns);
    let before = totals.reaching_stalled_ns.saturating_sub(totals.reaching_stalled_for_huge_ns);
    let ns = in_pauses.saturating_add(before);
    let of_ns = totals.paused_ns.saturating_add(totals.reaching_ns);
    let of = |wait: fn(&Explained) -> Option<u64>| sum(pauses.iter().filter_map(wait));
    let (compaction, reclaim) = (of(|pause| pause.split.compaction_ns), of(|pause| pause.split.reclaim_ns));
    let wait = if compaction > reclaim { Wait::Compaction } else { Wait::Reclaim };
    (ns >= LEAST_NS && ns as f64 >= OF_ALL * of_ns as f64)
        .then_some(Decision { verdict: Verdict::Other, because: Because::OtherWaiting { ns, of_ns, wait } })
}

/// Events were lost, and the kernel's own sums do not say that they were of no importance.
fn lost(gathered: &Gathered, totals: &Totals) -> Option<Decision> {
    let (count, uncounted) = gathered.lost.get(&Evidence::Events).copied().unwrap_or_default();
    if count == 0 && !uncounted {
        return None;
    }
    let harmless = totals.accounted.as_ref().is_some_and(|sums| sum(sums.values().copied()) < LEAST_NS);
    (!harmless).then_some(Decision { verdict: Verdict::CouldNotTell, because: Because::Lost { count } })
}

/// Getting and zeroing pages of any size.
fn touched(pause: &Explained) -> u64 {
    pause.split.zeroing_ns.unwrap_or(0).saturating_add(pause.split.first_touch_ns.unwrap_or(0))
}

/// System time of a pause.
fn system_ns(pause: &Explained) -> u64 {
    pause.stop.cpu.map_or(0, |cpu| cpu.sys_ns)
}

/// CPU time of all pauses.
fn cpu_ns(pauses: &[Explained]) -> u64 {
    let user = |pause: &Explained| pause.stop.cpu.map_or(0, |cpu| cpu.user_ns);
    sum(pauses.iter().map(user)).saturating_add(sum(pauses.iter().map(system_ns)))
}

/// The pauses in which the kernel worked longer than the collector, where that matters: all together, or
/// one by itself.
fn suspects(pauses: &[Explained]) -> Vec<&Explained> {
    let suspects: Vec<&Explained> = pauses.iter().filter(|pause| pause.is_suspect()).collect();
    let system = || suspects.iter().map(|pause| system_ns(pause));
    let matter = sum(system()) as f64 >= OF_ALL * cpu_ns(pauses) as f64 || system().any(|ns| ns >= LONG_NS);
    if matter { suspects } else { Vec::new() }
}

fn first_touch(pauses: &[Explained], totals: &Totals) -> Option<Decision> {
    let ns = sum(pauses.iter().map(touched));
    if ns < LEAST_NS {
        return None;
    }
    let of_all = sum(pauses.iter().map(system_ns));
    let suspects = suspects(pauses);
    let of_suspects = sum(suspects.iter().map(|pause| touched(pause)));
    let suspected = sum(suspects.iter().map(|pause| system_ns(pause)));
    let explains = suspected > 0 && of_suspects as f64 >= OF_SYSTEM * suspected as f64;
    let matters = match cpu_ns(pauses) {
        0 => ns as f64 >= OF_SYSTEM * totals.paused_ns as f64,
        cpu => ns as f64 >= OF_CPU * cpu as f64,
    };
    (explains || matters).then_some(Decision {
        verdict: Verdict::FirstTouch,
        because: Because::Touch { ns, system_ns: of_all },
    })
}

fn system(pauses: &[Explained]) -> Option<Decision> {
    let suspects = suspects(pauses);
    if suspects.is_empty() {
        return None;
    }
    let ns = sum(suspects.iter().map(|pause| system_ns(pause)));
    let unexplained: Option<Vec<u64>> = suspects.iter().map(|pause| pause.split.other_system_ns).collect();
    let unexplained_ns = unexplained.map(|all| sum(all.into_iter()));
    let verdict = if unexplained_ns.is_some() { Verdict::Other } else { Verdict::CouldNotTell };
    Some(Decision { verdict, because: Because::System { ns, unexplained_ns } })
}

fn reaching(totals: &Totals) -> Option<Decision> {
    let (ns, of_ns) = (totals.reaching_ns, totals.paused_ns.saturating_add(totals.reaching_ns));
    (ns >= LONG_NS && ns as f64 >= OF_ONE * of_ns as f64)
        .then_some(Decision { verdict: Verdict::Other, because: Because::Reaching { ns, of_ns } })
}

/// A JVM without a log: nobody knows of its pauses.
fn no_log(gathered: &Gathered) -> Option<Decision> {
    let is_jvm = gathered.threads.iter().any(|thread| thread.role == Role::Collector);
    (gathered.logs.is_empty() && is_jvm)
        .then_some(Decision { verdict: Verdict::CouldNotTell, because: Because::NoLog })
}
