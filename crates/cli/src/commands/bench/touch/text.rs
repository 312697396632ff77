//! The result of `bench touch` as a table like JMH's, and in JMH's JSON format.

use hugewise_linux::{pages::coverage::Coverage, reading::Reading};
use hugewise_measure::{
    statistics::mean_with_error,
    touch_bench::{TouchRow, TouchTable},
};
use serde_json::{Value, json};

use super::super::measurements;
use crate::output::terminal::Terminal;

/// Confidence level of the error, as in JMH.
const CONFIDENCE: f64 = 0.999;
/// The version of JMH whose result format is written.
const JMH_FORMAT: &str = "1.37";

const HEADINGS: [&str; 9] =
    ["Benchmark", "(backing)", "(bytes)", "Mode", "Cnt", "Score", "Error", "Units", "coverage"];

/// Hardware counters and their column headings.
const COUNTERS: [(&str, &str); 4] = [
    ("cycles", "cycles/op"),
    ("dTLB-loads", "dTLB-loads/op"),
    MISSES,
    ("page-walk-cycles", "walk-cycles/op"),
];
/// The only column of counters if none is known.
const MISSES: (&str, &str) = ("dTLB-load-misses", "dTLB-misses/op");

/// The table, notes, and skipped measurements with their reasons.
pub fn text(table: &TouchTable, terminal: &Terminal) -> String {
    let known = |(name, _): &(&str, &str)| table.rows.iter().any(|row| count(row, name).known().is_some());
    let counters_known = COUNTERS.iter().any(known);
    let counters = if counters_known { &COUNTERS[..] } else { &[MISSES] };
    let headings = HEADINGS.iter().chain(counters.iter().map(|(_, heading)| heading)).copied();
    let rows = table.rows.iter().map(|row| cells(row, counters));
    let mut out = measurements(headings.collect(), [0, 1], rows, terminal);
    for note in notes(table, counters_known) {
        out += &format!("{}\n", terminal.dim(&note));
    }
    for out_of in &table.left_out {
        let what = format!("{} at {}", table.bench.backings[out_of.arm], table.bench.sizes[out_of.case].0);
        out += &format!("{} {what}: {}\n", terminal.warn("skipped"), out_of.reason);
    }
    out
}

fn cells(row: &TouchRow, counters: &[(&str, &str)]) -> Vec<String> {
    let values = values(row);
    let score = mean_with_error(&values, CONFIDENCE);
    let number = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), |value| format!("{value:.3}"));
    let mut cells = vec![
        "touch".to_owned(),
        row.backing.to_string(),
        row.bytes.0.to_string(),
        "avgt".to_owned(),
        values.len().to_string(),
        number(score.map(|score| score.mean)),
        format!("± {}", number(score.and_then(|score| score.error))),
        "ns/op".to_owned(),
        coverage(row),
    ];
    cells.extend(counters.iter().map(|(name, _)| match count(row, name) {
        Reading::Known(value) => format!("{value:.3}"),
        Reading::Unknown { .. } => "n/a".to_owned(),
    }));
    cells
}

fn notes(table: &TouchTable, counters_known: bool) -> Vec<String> {
    let bench = &table.bench;
    let mut notes = vec![
        format!(
            "Cnt: {} processes with {} iterations of {} reads each. Error: half of the {:.1} % interval.",
            bench.forks,
            bench.iterations,
            bench.reads,
            CONFIDENCE * 100.0
        ),
        "coverage: share of the buffer's resident bytes on huge pages, read from the page table.".to_owned(),
    ];
    let reasons = table.rows.iter().flat_map(|row| COUNTERS.iter().map(|(name, _)| count(row, name)));
    if let Some(reason) = reasons.filter_map(|count| count.reason().map(str::to_owned)).next() {
        let all = "Hardware counters (cycles, dTLB loads and misses, page walks)";
        let which = if counters_known { "n/a" } else { all };
        notes.push(format!("{which}: {reason}."));
    }
    notes
}

/// The lowest coverage of a row's processes: a single process without huge pages distorts the mean.
fn coverage(row: &TouchRow) -> String {
    match shares(row) {
        Some(shares) => format!("{:.0} %", 100.0 * shares.into_iter().fold(1.0, f64::min)),
        None => "?".to_owned(),
    }
}

/// The coverage of each process; `None` if one is unknown.
fn shares(row: &TouchRow) -> Option<Vec<f64>> {
    row.forks.iter().map(|fork| fork.coverage.known().and_then(Coverage::share)).collect()
}

fn values(row: &TouchRow) -> Vec<f64> {
    row.forks.iter().flat_map(|fork| fork.ns_per_op.iter().copied()).collect()
}

/// Counter value per read, mean over the processes.
fn count(row: &TouchRow, name: &str) -> Reading<f64> {
    let mut sum = 0.0;
    for fork in &row.forks {
        match fork.counts.get(name) {
            Some(Reading::Known(count)) => match count.per_operation(fork.operations) {
                Reading::Known(value) => sum += value,
                unknown @ Reading::Unknown { .. } => return unknown,
            },
            Some(Reading::Unknown { unknown }) => return Reading::unknown(unknown),
            None => return Reading::unknown("it was not measured"),
        }
    }
    Reading::Known(sum / row.forks.len().max(1) as f64)
}

/// The result in JMH's JSON format: an array of results.
pub fn jmh(table: &TouchTable) -> Value {
    let bench = &table.bench;
    let result = |row: &TouchRow| {
        let mut secondary = serde_json::Map::new();
        if let Some(shares) = shares(row) {
            secondary.insert("coverage".to_owned(), metric(&[shares], "share"));
        }
        for (name, _) in COUNTERS {
            if let Reading::Known(value) = count(row, name) {
                secondary.insert(name.to_owned(), metric(&[vec![value]], "#/op"));
            }
        }
        let raw: Vec<Vec<f64>> = row.forks.iter().map(|fork| fork.ns_per_op.clone()).collect();
        json!({
            "jmhVersion": JMH_FORMAT,
            "benchmark": "hugewise.touch",
            "mode": "avgt",
            "threads": 1,
            "forks": bench.forks,
            "jvm": "native",
            "jvmArgs": [],
            "vmName": "hugewise",
            "vmVersion": env!("CARGO_PKG_VERSION"),
            "warmupIterations": bench.warm_up,
            "warmupBatchSize": bench.reads,
            "measurementIterations": bench.iterations,
            "measurementBatchSize": bench.reads,
            "params": { "backing": row.backing.to_string(), "bytes": row.bytes.0.to_string() },
            "primaryMetric": metric(&raw, "ns/op"),
            "secondaryMetrics": secondary,
        })
    };
    Value::Array(table.rows.iter().map(result).collect())
}

fn metric(raw: &[Vec<f64>], unit: &str) -> Value {
    let values: Vec<f64> = raw.iter().flatten().copied().collect();
    let score = mean_with_error(&values, CONFIDENCE);
    let (mean, error) = (score.map(|score| score.mean), score.and_then(|score| score.error));
    let confidence = mean.zip(error).map(|(mean, error)| [mean - error, mean + error]);
    json!({
        "score": mean,
        // JMH writes NaN as a string if there are too few values for an error.
        "scoreError": error.map_or(json!("NaN"), |error| json!(error)),
        "scoreConfidence": confidence.map_or(json!(["NaN", "NaN"]), |interval| json!(interval)),
        "scorePercentiles": percentiles(values),
        "scoreUnit": unit,
        "rawData": raw,
    })
}

fn percentiles(mut values: Vec<f64>) -> Value {
    values.sort_by(f64::total_cmp);
    let at = |percent: f64| {
        let index = (percent / 100.0 * values.len() as f64).ceil() as usize;
        values.get(index.saturating_sub(1)).copied()
    };
    let names = ["0.0", "50.0", "90.0", "95.0", "99.0", "99.9", "99.99", "99.999", "99.9999", "100.0"];
    let each = names.iter().map(|name| ((*name).to_owned(), json!(at(name.parse().unwrap_or(0.0)))));
    Value::Object(each.collect())
}
