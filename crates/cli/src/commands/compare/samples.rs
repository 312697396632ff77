//! Synthetic comparisons for tests of the reports.

use std::{collections::BTreeMap, time::Duration};

use fastrand::Rng;
use hugewise_linux::units::Bytes;
use hugewise_measure::{
    analysis::analyse,
    comparison::{
        ArmBacking, Better, Case, Comparison, Design, Figure, LeftOut, Machine, Round,
        live::{Ending, Live, LiveTurn},
    },
    random_read::RandomRead,
    statistics::Ratio,
};

/// Name, unit and means (one for each arm) of a figure.
struct Means<'a>(&'a str, &'a str, &'a [f64]);

fn arms(names: &[&str]) -> Vec<ArmBacking> {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

fn empty(arms: Vec<ArmBacking>, rounds: usize) -> Comparison {
    Comparison {
        schema: "hugewise.compare/2".to_owned(),
        version: "0.1.0".to_owned(),
        started_unix_seconds: 1_795_000_000,
        machine: Machine {
            kernel: "6.12.48+deb13-amd64".to_owned(),
            architecture: "x86_64".to_owned(),
            cpu: Some("AMD EPYC 7B13 64-Core Processor".to_owned()),
            cpus: 8,
            memory: Bytes(25_020_006_400),
            host_takes_back_free_memory: false,
            random_read: None,
        },
        design: Design { arms, rounds, warm_up: 1, seed: 42, aa: false, turns: false, fragmented: None },
        cases: Vec::new(),
        left_out: Vec::new(),
        backings: Vec::new(),
        effects: Vec::new(),
        rounds: Vec::new(),
        live: None,
        changes: Vec::new(),
        notes: Vec::new(),
    }
}

fn add(comparison: &mut Comparison, mut case: Case, noise: f64, coverage: &[f64], means: &[Means<'_>]) {
    let mut rng = Rng::with_seed(7 + comparison.cases.len() as u64);
    let index = comparison.cases.len();
    case.figures = means
        .iter()
        .map(|Means(name, unit, _)| Figure {
            name: (*name).to_owned(),
            unit: (*unit).to_owned(),
            better: if unit.ends_with("/s") { Better::Higher } else { Better::Lower },
        })
        .collect();
    for block in 0..=comparison.design.rounds {
        for (arm, coverage) in coverage.iter().enumerate() {
            let mut scatter = || 1.0 + noise * (rng.f64() + rng.f64() + rng.f64() - 1.5) * 2.0;
            let figures = means
                .iter()
                .map(|Means(name, unit, means)| {
                    let value = means[arm] * scatter();
                    ((*name).to_owned(), if unit.is_empty() && value > 2.0 { value.round() } else { value })
                })
                .collect();
            comparison.rounds.push(Round {
                case: index,
                arm,
                block: block.checked_sub(1),
                fell_back: None,
                figures,
                coverage: Some((coverage * (1.0 - 0.004 * rng.f64())).max(0.0)),
                turns: None,
                off_heap_coverage: None,
                server_coverage: Vec::new(),
                huge_pages_left: None,
            });
        }
    }
    comparison.cases.push(case);
}

fn case(workload: &str, command: &[&str], parameters: &[(&str, &str)]) -> Case {
    Case {
        workload: workload.to_owned(),
        embedded: command.is_empty(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        servers: Vec::new(),
        driver: Vec::new(),
        parameters: parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        figures: Vec::new(),
    }
}

/// Random reads in 1 GiB: a large and clear gain.
pub fn native() -> Comparison {
    let mut made = empty(arms(&["base", "thp", "hugetlb"]), 7);
    add(
        &mut made,
        case("native", &[], &[("size", "1GiB")]),
        0.02,
        &[0.0, 1.0, 1.0],
        &[
            Means("latency", "ns/op", &[29.0, 16.0, 15.8]),
            Means("first_touch", "s", &[0.412, 0.131, 0.118]),
            Means("minor_faults", "", &[262_401.0, 771.0, 640.0]),
        ],
    );
    made.changes = vec!["hugetlb pool of 2MiB pages: 0 → 520 pages, and back to 0".to_owned()];
    made.notes = vec!["data TLB misses could not be counted: no hardware counters in this VM".to_owned()];
    analyse(&mut made);
    made
}

/// A running process: a gain in its own metric.
pub fn live() -> Comparison {
    let mut made = empty(arms(&["base", "thp"]), 8);
    add(
        &mut made,
        case("java, process 4711", &["java", "-Xmx2g", "-jar", "orders.jar"], &[]),
        0.02,
        &[0.0, 0.99],
        &[Means("requests/s", "req/s", &[4100.0, 5200.0]), Means("cpu", "s/s", &[1.2, 1.2])],
    );
    made.rounds.retain(|round| round.block.is_some());
    let turn = |round: usize| LiveTurn {
        round,
        begin_seconds: 20.0 + 7.0 * round as f64,
        end_seconds: 25.0 + 7.0 * round as f64,
    };
    made.live = Some(Live {
        ending: Ending::Decided,
        left: Some("as_found".to_owned()),
        turns: (0..made.rounds.len()).map(turn).collect(),
        ..Live::new(4711, "heap", Duration::from_secs(5))
    });
    analyse(&mut made);
    made
}

/// A JVM: a gain in wall time, less in other figures, one backing without effect.
pub fn java() -> Comparison {
    let mut made = empty(arms(&["base", "thp", "hugetlb:2MiB", "shm:2MiB"]), 5);
    add(
        &mut made,
        case("java 25.0.1", &["java", "-Xmx4g", "-Xms4g", "-jar", "orders.jar", "--load", "peak day"], &[]),
        0.012,
        &[0.002, 0.94, 1.0, 1.0],
        &[
            Means("wall", "s", &[12.4, 10.9, 10.4, 12.3]),
            Means("user", "s", &[44.1, 40.2, 39.0, 43.8]),
            Means("sys", "s", &[2.31, 1.12, 0.62, 2.29]),
            Means("peak_memory", "bytes", &[4.6e9, 4.7e9, 4.8e9, 4.8e9]),
            Means("minor_faults", "", &[1_181_221.0, 64_128.0, 21_201.0, 21_811.0]),
            Means("gc_pause_total", "s", &[0.812, 0.744, 0.731, 0.808]),
            Means("gc_pause_worst", "s", &[0.061, 0.092, 0.051, 0.060]),
            Means("gc_sys_share", "", &[0.081, 0.062, 0.011, 0.080]),
            Means("heap_ready", "s", &[1.91, 0.71, 0.38, 1.88]),
        ],
    );
    made.changes = vec![
        "transparent huge pages: enabled always → madvise, and back".to_owned(),
        "hugetlb pool of 2MiB pages: 0 → 2112 pages, and back to 0".to_owned(),
    ];
    made.machine.random_read = Some(RandomRead {
        ratio: Ratio { estimate: 0.8, low: 0.782, high: 0.815 },
        buffer: Bytes(512 << 20),
    });
    analyse(&mut made);
    made
}

/// A list of heap sizes.
pub fn parameter_list() -> Comparison {
    let mut made = empty(arms(&["base", "thp", "hugetlb"]), 6);
    for (heap, base, gain) in [("1g", 4.1, 0.99), ("2g", 6.3, 0.93), ("4g", 11.9, 0.84)] {
        add(
            &mut made,
            case("java 25.0.1", &["java", "-Xmx{heap}", "-jar", "orders.jar"], &[("heap", heap)]),
            0.015,
            &[0.0, 0.93, 1.0],
            &[
                Means("wall", "s", &[base, base * gain, base * gain * 0.98]),
                Means("sys", "s", &[base / 7.0, base / 12.0, base / 20.0]),
            ],
        );
    }
    analyse(&mut made);
    made
}

/// Noise, a fallback, a skipped backing, a throughput, and names that must be escaped.
pub fn troubled() -> Comparison {
    let mut made = empty(arms(&["base", "thp", "hugetlb:2MiB", "hugetlb:1GiB", "shm"]), 5);
    add(
        &mut made,
        case(
            "<script>alert(1)</script>",
            &["serve", "--name=\u{1b}[31m<b>&\"it's\"", "--verbose"],
            &[("mode", "<script>alert(2)</script>")],
        ),
        0.02,
        &[0.0, 0.61, 0.31, 0.0, 1.0],
        &[
            Means("requests", "ops/s", &[81_200.0, 80_900.0, 81_000.0, 81_000.0, 91_000.0]),
            Means("gc_pause_total", "s", &[0.0, 0.0, 0.0, 0.0, 0.0]),
            Means("<i>odd</i>", "<u>", &[1.0, 1.1, 1.0, 1.0, 1.0]),
        ],
    );
    let mut rng = Rng::with_seed(3);
    for round in &mut made.rounds {
        if round.arm == 1 {
            round.figures.insert("requests".to_owned(), 60_000.0 + 50_000.0 * rng.f64());
        }
        if round.arm == 2 && round.block.is_some_and(|block| block != 2) {
            round.fell_back = Some(
                "the JVM took base pages: the pool held 812 of 1000 pages of 2MiB when it started; \
                 run `hugewise plan` and apply it before the start"
                    .to_owned(),
            );
        }
    }
    made.rounds.retain(|round| round.arm != 3);
    made.left_out.push(LeftOut {
        case: 0,
        arm: 3,
        reason: "this machine has no contiguous memory for pages of 1GiB: reserve them at boot with \
                 hugepagesz=1G hugepages=4"
            .to_owned(),
    });
    made.notes = vec!["<script>alert(3)</script> \u{1b}]0;title\u{7}".to_owned()];
    analyse(&mut made);
    made
}

/// One backing against itself.
pub fn against_itself() -> Comparison {
    let mut made = empty(arms(&["thp", "thp"]), 8);
    made.design.aa = true;
    add(
        &mut made,
        case("native", &[], &[("size", "256MiB")]),
        0.03,
        &[1.0, 1.0],
        &[Means("latency", "ns/op", &[16.0, 16.0])],
    );
    analyse(&mut made);
    made
}

/// No run.
pub fn nothing() -> Comparison {
    let mut made = empty(arms(&["base", "thp"]), 0);
    made.cases.push(Case {
        workload: "nothing".to_owned(),
        embedded: false,
        command: Vec::new(),
        servers: Vec::new(),
        driver: Vec::new(),
        parameters: BTreeMap::new(),
        figures: Vec::new(),
    });
    analyse(&mut made);
    made
}

/// Figures with infinite, missing and extreme values.
pub fn extreme() -> Comparison {
    let mut made = empty(arms(&["base", "thp", "hugetlb", "shm"]), 6);
    let figures = ["a", "b", "c"].map(|name| Means(name, "s", &[1.0, 1.0, 1.0, 1.0]));
    add(&mut made, case(&"long ".repeat(50), &["x"], &[]), 0.0, &[0.0, 1.0, 2.0, -1.0], &figures);
    let odd = [1e308, -1e308, 1e-308, f64::NAN, f64::INFINITY, 0.0, 1e16, 1e16 + 2.0, 1e300];
    let mut next = odd.iter().cycle();
    for round in &mut made.rounds {
        for value in round.figures.values_mut() {
            if let (true, Some(odd)) = (round.arm > 0, next.next()) {
                *value = *odd;
            }
        }
    }
    for round in made.rounds.iter_mut().filter(|round| round.arm == 0) {
        round.figures.insert("a".to_owned(), 1e16);
        round.coverage = Some(f64::NAN);
    }
    analyse(&mut made);
    made
}
