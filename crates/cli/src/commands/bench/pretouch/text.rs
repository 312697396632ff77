//! The result of `bench pretouch` as text.

use hugewise_linux::{hugepages::backing::Backing, reading::Reading};
use hugewise_measure::{
    pretouch::{
        Case, Implementation, PretouchRow, Sample,
        bench::name,
        model::Model,
        prediction::{Check, Prediction, Threads},
        ratios::{ChunkAdvice, EngineSpeed, MIN_SAVING},
    },
    statistics::{Ratio, median},
};

use super::{
    super::measurements,
    result::PretouchReport,
    units::{threads, time},
};
use crate::output::terminal::{Terminal, plain};

const HEADINGS: [&str; 13] = [
    "backing",
    "bytes",
    "threads",
    "method",
    "chunk",
    "Cnt",
    "touch ms",
    "worst ms",
    "GiB/s",
    "release ms",
    "coverage",
    "fallbacks",
    "stalls",
];
/// Indexes of the columns that are aligned to the left.
const WORDS: [usize; 2] = [0, 3];

pub fn text(report: &PretouchReport, terminal: &Terminal) -> String {
    let rows = report.table.rows.iter().map(|row| cells(row, report));
    let mut text = measurements(HEADINGS.to_vec(), WORDS, rows, terminal);
    for note in notes(report) {
        text += &terminal.dim(&note);
        text.push('\n');
    }
    for out in &report.table.left_out {
        // Text from another program keeps its line breaks.
        let reason = out.reason.lines().map(plain).collect::<Vec<_>>().join("\n");
        text += &format!("{} {}: {reason}\n", terminal.warn("skipped"), plain(&out.what));
    }
    let sections = [
        ("Speed relative to other methods, on the same memory", against(report)),
        ("PreTouchParallelChunkSize", report.advice.iter().map(|advice| advised(advice, report)).collect()),
        ("Model", model(report)),
        ("Prediction", predictions(report)),
        ("Verification", checks(report, terminal)),
    ];
    for (heading, lines) in sections {
        if !lines.is_empty() {
            text += &format!("\n{}\n", terminal.bold(heading));
            lines.iter().for_each(|line| text += &format!("{line}\n"));
        }
    }
    text
}

fn cells(row: &PretouchRow, report: &PretouchReport) -> Vec<String> {
    let times: Vec<f64> = row.samples.iter().map(|sample| sample.seconds).collect();
    let middle = median(&times).unwrap_or(f64::NAN);
    let ms = |seconds: f64| format!("{:.1}", seconds * 1e3);
    let used = row.samples.iter().map(|sample| sample.threads).min().unwrap_or_default();
    let Case { bytes, backing, threads } = row.case;
    vec![
        backing.to_string(),
        bytes.to_string(),
        if used == threads { threads.to_string() } else { format!("{threads}→{used}") },
        name(row.way.by, &report.table.jvms).to_owned(),
        chunk(row),
        times.len().to_string(),
        ms(middle),
        ms(times.iter().copied().fold(f64::NAN, f64::max)),
        format!("{:.2}", bytes.0 as f64 / f64::from(1 << 30) / middle),
        of_all(row, |sample| sample.release_seconds.known().copied())
            .and_then(|times| median(&times))
            .map_or_else(|| "?".to_owned(), ms),
        of_all(row, |sample| sample.coverage.known().copied())
            .map(|shares| shares.into_iter().fold(1.0, f64::min))
            .map_or_else(|| "?".to_owned(), |share| format!("{:.0} %", share * 100.0)),
        most(row, |sample| sample.fallbacks.known().copied()),
        most(row, |sample| sample.stalls.known().copied()),
    ]
}

fn most(row: &PretouchRow, of: impl Fn(&Sample) -> Option<u64>) -> String {
    let most = of_all(row, of).and_then(|counts| counts.into_iter().max());
    most.map_or_else(|| "?".to_owned(), |count| count.to_string())
}

/// The values of all samples; `None` if one is unknown.
fn of_all<T>(row: &PretouchRow, of: impl Fn(&Sample) -> Option<T>) -> Option<Vec<T>> {
    row.samples.iter().map(of).collect()
}

fn chunk(row: &PretouchRow) -> String {
    let used = row.samples.first().and_then(|sample| sample.chunk);
    match (row.way.chunk, used) {
        (None, Some(used)) => format!("auto {used}"),
        (None, None) => "auto".to_owned(),
        (Some(asked), Some(used)) if asked != used => format!("{asked}→{used}"),
        (Some(asked), _) => asked.to_string(),
    }
}

fn notes(report: &PretouchReport) -> Vec<String> {
    let samples = || report.table.rows.iter().flat_map(|row| &row.samples);
    let mut notes = vec![
        "touch: median time of Cnt processes to populate all of the memory, including thread start; worst: \
         the longest."
            .to_owned(),
        "release: median time to release all of the memory; of a JVM, from SIGKILL until its end.".to_owned(),
        "coverage: lowest share of the memory on huge pages, read from the kernel. fallbacks: failed THP \
         allocations (thp_fault_fallback). stalls: direct compaction and reclaim (compact_stall, allocstall). \
         Both are machine-wide: the maximum during one process."
            .to_owned(),
    ];
    if report.table.rows.iter().any(|row| row.samples.iter().any(|s| s.threads != row.case.threads)) {
        notes.push("threads A→B: A requested, B used.".to_owned());
    }
    let got_another = |row: &PretouchRow| {
        row.samples.iter().any(|s| s.chunk.zip(row.way.chunk).is_some_and(|(used, asked)| used != asked))
    };
    if report.table.rows.iter().any(got_another) {
        notes.push("chunk A→B: A requested, B used.".to_owned());
    }
    if report.table.host_takes_back_free_memory {
        notes.push(
            "The host reclaims free memory of this virtual machine (free page reporting): times, mainly those of \
             THP, include getting it back from the host."
                .to_owned(),
        );
    }
    let all = samples().count();
    let counted: usize = report.table.rows.iter().map(|row| row.counted().count()).sum();
    if counted < all {
        notes.push(format!(
            "{} of {all} processes did not get the requested pages: ratios and the model exclude them.",
            all - counted
        ));
    }
    let reasons = [
        ("coverage", samples().find_map(|sample| sample.coverage.reason())),
        ("fallbacks", samples().find_map(|sample| sample.fallbacks.reason())),
        ("stalls", samples().find_map(|sample| sample.stalls.reason())),
        ("release", samples().find_map(|sample| sample.release_seconds.reason())),
    ];
    for (what, reason) in reasons {
        notes.extend(reason.map(|reason| format!("{what} unknown (?): {}", plain(reason))));
    }
    notes
}

fn against(report: &PretouchReport) -> Vec<String> {
    let line = |against: &EngineSpeed| {
        let Case { bytes, backing, threads: count } = against.case;
        let other = name(against.other, &report.table.jvms);
        let speed = match &against.speed {
            Some(Ratio { estimate, low, high }) => {
                format!("{estimate:.2} × the speed of {other} (95 %: {low:.2} to {high:.2})")
            }
            None => format!("inconclusive against {other}: fewer than 3 repetitions got the requested pages"),
        };
        format!("  {bytes} on {backing}, {}: {speed}", threads(count))
    };
    report.against.iter().map(line).collect()
}

fn advised(advice: &ChunkAdvice, report: &PretouchReport) -> String {
    let Case { bytes, backing, threads: count } = advice.case;
    let jvm = name(Implementation::Jvm(advice.jvm), &report.table.jvms);
    let place = format!("  {jvm}, {bytes} on {backing}, {}", threads(count));
    let default = advice.default_chunk.map(|chunk| format!(" of {chunk}")).unwrap_or_default();
    let (Some(ratio), Some(fastest)) = (&advice.ratio, advice.fastest) else {
        return format!("{place}: inconclusive: fewer than 3 repetitions got the requested pages");
    };
    let seen = format!(
        "{fastest}, the fastest of {} other sizes, takes {:.2} × the default's time ({:.2} to {:.2})",
        advice.tried, ratio.estimate, ratio.low, ratio.high
    );
    if advice.worth_setting {
        format!("{place}: set -XX:PreTouchParallelChunkSize={}; the default{default}: {seen}", fastest.0)
    } else if advice.default_is_as_good {
        format!("{place}: the default{default} is as good: {seen}")
    } else {
        let share = MIN_SAVING * 100.0;
        format!("{place}: keep the default{default}: no significant gain of at least {share:.0} %; {seen}")
    }
}

fn model(report: &PretouchReport) -> Vec<String> {
    let model = match &report.model {
        Reading::Known(model) => model,
        Reading::Unknown { unknown } => return vec![format!("  no model: {unknown}")],
    };
    let mut lines = vec![format!("  time = {} + bytes / speed", time(model.fixed_seconds))];
    for line in &model.lines {
        lines.push(format!(
            "  {} with {}: {:.2} GiB/s, residuals {}",
            line.backing,
            threads(line.threads),
            1.0 / line.seconds_per_gib,
            residuals(model, line.backing, line.threads)
        ));
    }
    for gain in &report.gains {
        let limit = if gain.at_limit { ": more threads give no further speedup" } else { "" };
        lines.push(format!(
            "  {}: {} are {:.2} times as fast as {}{limit}",
            gain.backing,
            threads(gain.threads),
            gain.speedup,
            gain.from_threads
        ));
    }
    if let Reading::Known(costs) = &report.costs {
        lines.push(format!(
            "  with {}: {} per GiB, plus {:.0} ns per base page",
            threads(costs.threads),
            time(costs.seconds_per_gib),
            costs.seconds_per_base_page * 1e9
        ));
    }
    lines.push(format!(
        "  Standard deviations: {:.1} % between processes, {:.1} % of sizes from the model ({} degrees of freedom).",
        model.deviation_between_processes * 100.0,
        model.deviation_from_model * 100.0,
        model.freedom
    ));
    lines
}

fn residuals(model: &Model, backing: Backing, threads: usize) -> String {
    let of_line = model.residuals.iter().filter(|r| (r.backing, r.threads) == (backing, threads));
    let each = of_line.map(|residual| {
        let off = (residual.measured_seconds / residual.modelled_seconds - 1.0) * 100.0;
        format!("{}: {off:+.1} %", residual.bytes)
    });
    each.collect::<Vec<_>>().join(", ")
}

fn predictions(report: &PretouchReport) -> Vec<String> {
    let mut lines: Vec<String> = report
        .predictions
        .iter()
        .map(|predicted_case| match &predicted_case.prediction {
            Reading::Known(prediction) => format!("  {}", predicted(prediction)),
            Reading::Unknown { unknown } => format!("  unknown: {unknown}"),
        })
        .collect();
    if !lines.is_empty() {
        lines.push(
            "  95 % intervals for one new process on an idle machine of this kind. Not included: memory of another \
             NUMA node, memory that a host must first allocate to its virtual machine, compaction for huge pages."
                .to_owned(),
        );
    }
    lines
}

fn predicted(prediction: &Prediction) -> String {
    let how = match prediction.threads_are {
        Threads::Measured => "",
        Threads::Between => ", interpolated between measured thread counts",
        Threads::Beyond => ", more threads than measured: bounds for proportional and for no speedup",
        Threads::Below => ", fewer threads than measured: bounds for no and for proportional slowdown",
    };
    let middle = prediction.seconds.map(|middle| format!(", likely {}", time(middle))).unwrap_or_default();
    format!(
        "{} on {} with {}: {} to {}{middle}{how}",
        prediction.bytes,
        prediction.backing,
        threads(prediction.threads),
        time(prediction.low_seconds),
        time(prediction.high_seconds)
    )
}

fn checks(report: &PretouchReport, terminal: &Terminal) -> Vec<String> {
    let line = |check: &Check| {
        let verdict = if check.inside { terminal.good("inside") } else { terminal.bad("outside") };
        format!(
            "  {}; measured {}: {verdict} the interval ({} of {} processes inside)",
            predicted(&check.prediction),
            time(check.median_seconds),
            check.times_inside,
            check.measured_seconds.len()
        )
    };
    let mut lines: Vec<String> = report.checks.iter().map(line).collect();
    if let (Some(held_out), true) = (report.table.design.held_out, lines.is_empty()) {
        lines.push(format!("  inconclusive: {held_out} was not measured, or there is no model"));
    }
    lines
}
