//! The result of `bench touch` as a table like JMH's, and in JMH's JSON format.

use hugewise_linux::{pages::coverage::Coverage, reading::Reading};
use hugewise_measure::{
    statistics::mean_with_error,
    touch_bench::{TouchRow, TouchTable},
};
use serde_json::{Value, json};

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
    ("dTLB-load-misses", "dTLB-misses/op"),
    ("page-walk-cycles", "walk-cycles/op"),
];

/// The table, notes, and skipped measurements with their reasons.
pub fn text(table: &TouchTable, terminal: &Terminal) -> String {
    let counters_known =
        table.rows.iter().any(|row| COUNTERS.iter().any(|(name, _)| count(row, name).known().is_some()));
    let mut rows = vec![headings(counters_known)];
    rows.extend(table.rows.iter().map(|row| cells(row, counters_known)));
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        let line: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(
                |(column, (cell, width))| {
                    if column < 2 { format!("{cell:width$}") } else { format!("{cell:>width$}") }
                },
            )
            .collect();
        let line = line.join("  ");
        out += &if number == 0 { terminal.bold(line.trim_end()) } else { line.trim_end().to_owned() };
        out.push('\n');
    }
    out.push('\n');
    for note in notes(table, counters_known) {
        out += &format!("{}\n", terminal.dim(&note));
    }
    for out_of in &table.left_out {
        let what = format!("{} at {}", table.bench.backings[out_of.arm], table.bench.sizes[out_of.case].0);
        out += &format!("{} {what}: {}\n", terminal.warn("skipped"), out_of.reason);
    }
    out
}

fn headings(counters_known: bool) -> Vec<String> {
    let fixed = HEADINGS.iter().map(|heading| (*heading).to_owned());
    if counters_known {
        fixed.chain(COUNTERS.iter().map(|(_, heading)| (*heading).to_owned())).collect()
    } else {
        fixed.chain(["dTLB-misses/op".to_owned()]).collect()
    }
}

fn cells(row: &TouchRow, counters_known: bool) -> Vec<String> {
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
    if counters_known {
        cells.extend(COUNTERS.iter().map(|(name, _)| match count(row, name) {
            Reading::Known(value) => format!("{value:.3}"),
            Reading::Unknown { .. } => "n/a".to_owned(),
        }));
    } else {
        cells.push("n/a".to_owned());
    }
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
        let which = if counters_known {
            "n/a"
        } else {
            "Hardware counters (cycles, dTLB loads and misses, page walks)"
        };
        notes.push(format!("{which}: {reason}."));
    }
    notes
}

/// The lowest coverage of a row's processes: a single process without huge pages distorts the mean.
fn coverage(row: &TouchRow) -> String {
    let shares = row.forks.iter().map(|fork| fork.coverage.known().and_then(Coverage::share));
    match shares.collect::<Option<Vec<f64>>>() {
        Some(shares) => format!("{:.0} %", 100.0 * shares.into_iter().fold(1.0, f64::min)),
        None => "?".to_owned(),
    }
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
        let shares: Vec<f64> =
            row.forks.iter().filter_map(|fork| fork.coverage.known().and_then(Coverage::share)).collect();
        if shares.len() == row.forks.len() {
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
