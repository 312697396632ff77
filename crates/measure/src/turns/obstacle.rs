//! Obstacles to the turns of a command: whether its runs can be stopped and alive at once, by its warm-ups.

use std::collections::BTreeMap;

use hugewise_linux::{reading::Reading, units::Bytes};

use super::MAX_MEMORY_TENTHS;
use crate::comparison::Round;

/// Shortest run that is divided into turns, in seconds.
const SHORTEST_RUN: f64 = 1.0;
/// Least CPU time of a run that is divided into turns, with its waits for a CPU, relative to its wall time: a
/// run that waits for time to pass would also wait while it is stopped.
const LEAST_CPU: f64 = 0.9;

/// Why the runs of a case cannot take turns, from the figure that decides its verdict and from its warm-ups;
/// `None` if they can.
pub(crate) fn obstacle(
    figure: Option<&str>,
    warm_ups: &[&Round],
    available: &Reading<Bytes>,
) -> Option<String> {
    if figure != Some("wall") {
        let figure = figure.unwrap_or("nothing");
        return Some(format!("the verdict is about '{figure}', and turns measure wall time"));
    }
    let values = |name: &str| -> Vec<f64> {
        warm_ups.iter().filter_map(|round| round.figures.get(name).copied()).collect()
    };
    let (walls, cpus, waits) = (values("wall"), values("cpu"), values("cpu_wait"));
    if let Some(short) = walls.iter().find(|wall| **wall < SHORTEST_RUN) {
        return Some(format!("a run takes {short:.2} s, and turns need at least {SHORTEST_RUN} s"));
    }
    let shares = walls.iter().zip(cpus.iter().zip(&waits)).map(|(wall, (cpu, wait))| (cpu + wait) / wall);
    let share = shares.fold(f64::INFINITY, f64::min);
    if share < LEAST_CPU {
        let (share, least) = (100.0 * share, 100.0 * LEAST_CPU);
        return Some(format!(
            "a run uses or waits for a CPU for {share:.0} % of its time, and turns need at least {least} %"
        ));
    }
    let peaks = memory_of_block(warm_ups.iter().copied());
    let available = match available {
        Reading::Known(available) => available,
        Reading::Unknown { unknown } => return Some(format!("the available memory is unknown: {unknown}")),
    };
    let limit = Bytes(available.0 / 10 * MAX_MEMORY_TENTHS);
    (peaks > limit).then(|| format!("a block needs {peaks} of memory at once, and turns may use {limit}"))
}

/// Memory that the arms of these rounds of a case need together.
pub(crate) fn memory_of_block<'a>(rounds: impl Iterator<Item = &'a Round>) -> Bytes {
    let mut by_arm: BTreeMap<usize, f64> = BTreeMap::new();
    for round in rounds {
        let peak = by_arm.entry(round.arm).or_default();
        *peak = peak.max(round.figures.get("peak_memory").copied().unwrap_or_default());
    }
    Bytes(by_arm.values().sum::<f64>() as u64)
}

/// The note of a workload whose runs do not take turns.
pub(crate) fn note(workload: &str, obstacle: &str) -> String {
    format!("the runs of {workload} do not take turns, but go from start to end without stops: {obstacle}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(figures: &[(&str, f64)]) -> Round {
        Round {
            case: 0,
            arm: 0,
            block: None,
            fell_back: None,
            figures: figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            turns: None,
            coverage: None,
            off_heap_coverage: None,
            server_coverage: Vec::new(),
            huge_pages_left: None,
        }
    }

    #[test]
    fn an_obstacle_names_what_is_missing() {
        let of = |figure, wall, cpu, peak_memory| {
            let warm_up = |arm| Round {
                arm,
                ..round(&[
                    ("wall", wall),
                    ("cpu", cpu - 0.1),
                    ("cpu_wait", 0.1),
                    ("peak_memory", peak_memory),
                ])
            };
            let runs = [warm_up(0), warm_up(1), warm_up(0), warm_up(1)];
            obstacle(Some(figure), &runs.iter().collect::<Vec<_>>(), &Reading::Known(Bytes(10 << 30)))
        };
        let gib = f64::from(1 << 30);
        assert_eq!(of("wall", 2.0, 1.9, gib), None);
        for (obstacle, word) in [
            (of("ops", 2.0, 1.9, gib), "'ops'"),
            (of("wall", 0.5, 0.5, gib), "0.50 s"),
            (of("wall", 2.0, 1.0, gib), "50 %"),
            (of("wall", 2.0, 1.9, 4.0 * gib), "8GiB"),
        ] {
            assert!(obstacle.as_ref().is_some_and(|why| why.contains(word)), "{obstacle:?}");
        }
    }
}
