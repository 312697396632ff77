//! Texts of a live comparison.

use hugewise_linux::{action::Action, reading::Reading, units::Pages};
use hugewise_measure::{
    comparison::{
        Comparison,
        live::{Ending, Live, Transition},
    },
    live::LiveSettings,
    statistics,
    verdict::Verdict,
};

use super::{
    figures::{CPU_PER_ALLOCATED, CYCLES_PER_INSTRUCTION},
    host::{Leave, LiveHost},
    predict::{LivePrediction, Transitions},
};
use crate::{commands::compare::words as texts, output::words::counted};

/// Sleep of khugepaged between two scans that is longer than a comparison, in milliseconds: an hour.
const KHUGEPAGED_SLEEP_MS: u32 = 3_600_000;

fn predicted(prediction: &Reading<Transitions>) -> String {
    match prediction {
        Reading::Known(Transitions { to_huge, to_base }) => {
            times(to_huge.as_secs_f64(), to_base.as_secs_f64())
        }
        Reading::Unknown { unknown } => unknown_time(unknown),
    }
}

fn times(to_huge: f64, to_base: f64) -> String {
    format!("a transition to huge pages takes about {}, to base pages {}", seconds(to_huge), seconds(to_base))
}

fn unknown_time(unknown: &str) -> String {
    format!("the time of a transition is unknown ({unknown})")
}

/// `0.31 s`
fn seconds(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

/// The report of a dry run.
pub fn dry_run(dry_run: &LivePrediction) -> String {
    let LivePrediction { pid, name, size, max_transition_seconds: limit, .. } = dry_run;
    let pages = Pages(dry_run.pages);
    let refused =
        dry_run.detail.as_ref().map_or_else(String::new, |refused| format!("Not possible now: {refused}\n"));
    let times = match (&dry_run.to_huge_seconds, &dry_run.to_base_seconds) {
        (Reading::Known(to_huge), Reading::Known(to_base)) => times(*to_huge, *to_base),
        (Reading::Unknown { unknown }, _) | (_, Reading::Unknown { unknown }) => unknown_time(unknown),
    };
    format!(
        "{} of process {pid} ({name}) would change their pages: {pages} huge pages of {size}.\nPredicted: {times}; the \
         limit is {limit} s (--max-transition).\n{refused}",
        pages * *size,
    )
}

/// What is announced before the first turn.
pub fn announcement(name: &str, prediction: &Reading<Transitions>, settings: &LiveSettings) -> String {
    let turn = settings.turn.as_secs_f64();
    format!("process {name} takes turns of {turn} s on base and on huge pages; {}", predicted(prediction))
}

/// Adds what follows from the turns: notes, actions, and how the process is left.
pub fn complete(comparison: &mut Comparison, host: &LiveHost<'_>, left: Option<Leave>) {
    let Some(live) = &mut comparison.live else { return };
    live.left = left.map(|left| match left {
        Leave::Found => "as_found".to_owned(),
        Leave::Huge => "huge".to_owned(),
        Leave::Base => "base".to_owned(),
    });
    let live = live.clone();
    let mut notes = vec![figure(comparison)];
    notes.extend(variation(comparison));
    notes.push(transitions(&live));
    notes.extend(host.given_back.filter(|bytes| bytes.0 > 0).map(|bytes| {
        format!(
            "the first transition to base pages gave back {bytes} of zero-filled memory; on huge pages it is resident \
             again"
        )
    }));
    notes.push(
        "split pages stay contiguous in physical memory: CPUs that merge entries of their TLB, and page walks that the \
         caches serve, can make them faster than base pages from a fresh start"
            .to_owned(),
    );
    let has_ended = host.has_ended();
    notes.push(ending(&live, has_ended));
    comparison.notes.splice(0..0, notes);
    let actions = actions(comparison, &live, has_ended);
    if let Some(result) = comparison.backings.get_mut(1) {
        result.actions = actions;
    }
}

/// The figure that decides.
fn figure(comparison: &Comparison) -> String {
    let figure = comparison.cases.first().and_then(|case| case.figures.first());
    match figure.map(|figure| figure.name.as_str()) {
        Some("cpu") => "the verdict is about the CPU time of the process per second. It compares the work only while the \
                        load is steady and the CPUs are not saturated: give --metric for a figure of the program"
            .to_owned(),
        Some(CPU_PER_ALLOCATED) => {
            "the verdict is about the CPU time of the JVM for each GiB that it allocates, from its performance counters. \
             It can depend on the load: if that changes, give --metric"
                .to_owned()
        }
        Some(CYCLES_PER_INSTRUCTION) => {
            "the verdict is about the cycles per instruction of the process in user space, from hardware counters: nearly \
             independent of the load, if the program runs the same code; spinning threads count, too"
                .to_owned()
        }
        Some(name) => format!("the verdict is about the program's metric '{name}'"),
        None => "the comparison has no figure".to_owned(),
    }
}

/// How the figure varied from turn to turn.
fn variation(comparison: &Comparison) -> Option<String> {
    let name = &comparison.cases.first()?.figures.first()?.name;
    let of_arm = |arm: usize| {
        let rounds = comparison.rounds.iter().filter(|round| round.arm == arm && round.fell_back.is_none());
        let values: Vec<f64> = rounds.filter_map(|round| round.figures.get(name).copied()).collect();
        let error = statistics::mean_with_error(&values, 0.95)?;
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
        (error.mean > 0.0).then(|| {
            format!(
                "{}: {} to {} of its mean",
                comparison.design.arms[arm],
                texts::percent(low / error.mean),
                texts::percent(high / error.mean)
            )
        })
    };
    Some(format!("the figure varied from turn to turn: {}, {}", of_arm(0)?, of_arm(1)?))
}

fn transitions(live: &Live) -> String {
    let of = |to_huge: bool| {
        let all = live.transitions.iter().filter(|transition| transition.to_huge == to_huge);
        let all: Vec<f64> = all.map(|Transition { duration_seconds, .. }| *duration_seconds).collect();
        let longest = all.iter().copied().fold(0.0, f64::max);
        let pages = if to_huge { "huge" } else { "base" };
        let median = statistics::median(&all)?;
        Some(format!(
            "{} to {pages} pages, median {}, longest {}",
            counted(all.len() as u64, "transition"),
            seconds(median),
            seconds(longest)
        ))
    };
    let all: Vec<String> = [of(true), of(false)].into_iter().flatten().collect();
    let settled = if live.is_steady {
        format!(
            "the {:.1} s before each turn do not count: after that, the rate is steady",
            live.settling_seconds
        )
    } else {
        format!(
            "the {:.1} s before each turn do not count, but the rate did not become steady in the warm-up",
            live.settling_seconds
        )
    };
    if all.is_empty() { settled } else { format!("{}; {settled}", all.join("; ")) }
}

fn ending(live: &Live, has_ended: bool) -> String {
    let why = match live.ending {
        Ending::Decided => "the difference is known".to_owned(),
        Ending::OutOfTime => "the time is over, or the number of rounds reached".to_owned(),
        Ending::Interrupted => "it was interrupted".to_owned(),
        Ending::ProcessEnded => "the process ended".to_owned(),
        Ending::FellBack => "the memory was on other pages in all turns of one side".to_owned(),
        Ending::TransitionFailed => live.detail.clone().unwrap_or_default(),
    };
    let left = match live.left.as_deref() {
        _ if live.ending == Ending::ProcessEnded => return format!("the comparison ended: {why}"),
        _ if has_ended => "the process ended afterwards".to_owned(),
        Some("as_found") => "the memory is on the pages on which it was found".to_owned(),
        Some(pages) => format!("the memory is left on {pages} pages"),
        None => format!("the memory could not be put back: hugewise restore, or hugewise split {}", live.pid),
    };
    format!("the comparison ended: {why}; {left}")
}

/// The changes after the verdict.
fn actions(comparison: &Comparison, live: &Live, has_ended: bool) -> Vec<Action> {
    let [reference, result] = &comparison.backings[..] else { return Vec::new() };
    if comparison.design.aa {
        return Vec::new();
    }
    let pid = live.pid;
    let collapse = || {
        Action::new("Put the memory on huge pages now")
            .by(format!("sudo hugewise collapse {pid} --region {}", live.region))
            .verified_by(format!("hugewise inspect {pid}"))
    };
    match result.verdict {
        Verdict::Faster => {
            // Its user chose its command line: the reader of this report, who may be root, is not to copy it.
            let start = Action::new("Start the program on huge pages, as its user")
                .by("hugewise run --backing thp -- COMMAND");
            (!has_ended).then(collapse).into_iter().chain([start]).collect()
        }
        Verdict::FellBack if has_ended => Vec::new(),
        Verdict::FellBack => vec![
            Action::new("Find out why the memory is on other pages").by(format!("hugewise inspect {pid}")),
        ],
        Verdict::Inconclusive if reference.verdict == Verdict::FellBack => vec![
            Action::new("Let khugepaged sleep until 'hugewise restore', and compare again")
                .by(format!("sudo hugewise apply --khugepaged scan_sleep_millisecs={KHUGEPAGED_SLEEP_MS}")),
        ],
        Verdict::Inconclusive if has_ended => {
            vec![Action::new("Compare the program again after its next start")]
        }
        Verdict::Inconclusive => vec![Action::new(
            "Measure again with a longer --max-time, or with a metric that varies less (--metric-command, --metric-url)",
        )],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use hugewise_measure::analysis::analyse;

    use super::*;
    use crate::commands::compare::samples;

    /// The actions and the end of a comparison whose turns on base pages fell back, or did not.
    fn reported(base_fell_back: bool, has_ended: bool) -> Option<(Vec<String>, String)> {
        let mut made = samples::live();
        for round in made.rounds.iter_mut().filter(|round| base_fell_back && round.arm == 0) {
            round.fell_back =
                Some("97 % of the memory was on huge pages: khugepaged put it there".to_owned());
        }
        analyse(&mut made);
        let live = made.live.clone()?;
        let commands = actions(&made, &live, has_ended).into_iter().filter_map(|action| action.command);
        Some((commands.collect(), ending(&live, has_ended)))
    }

    #[test]
    fn actions_are_possible() {
        let start = "hugewise run --backing thp -- COMMAND".to_owned();
        let collapse = "sudo hugewise collapse 4711 --region heap".to_owned();
        let known = "the comparison ended: the difference is known; ";
        let as_found = format!("{known}the memory is on the pages on which it was found");
        assert_eq!(reported(false, false), Some((vec![collapse, start.clone()], as_found.clone())));
        assert_eq!(
            reported(false, true),
            Some((vec![start], format!("{known}the process ended afterwards")))
        );
        let sleep = "sudo hugewise apply --khugepaged scan_sleep_millisecs=3600000".to_owned();
        assert_eq!(reported(true, false), Some((vec![sleep], as_found)));
    }
}
