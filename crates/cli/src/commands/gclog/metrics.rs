//! The totals of a log as OpenMetrics text.

use std::fmt::{self, Write};

use hugewise_jvm::gc_log::summary::Durations;

use super::reports::Log;
use crate::output::terminal::plain;

pub fn openmetrics(log: &Log) -> Result<String, fmt::Error> {
    let summary = &log.summary;
    let mut out = String::new();
    family(&mut out, "gc_pause_seconds", "summary", Some("seconds"), "Pauses of all application threads.")?;
    for kind in &summary.kinds {
        samples(&mut out, "gc_pause_seconds", &format!("kind=\"{}\"", escaped(&kind.name)), &kind.durations)?;
    }
    let help =
        "CPU time of the process during pauses, in steps of 10 ms; only pauses with CPU times in the log.";
    family(&mut out, "gc_pause_cpu_seconds", "counter", Some("seconds"), help)?;
    for kind in summary.kinds.iter().filter(|kind| kind.with_cpu > 0) {
        let name = escaped(&kind.name);
        for (mode, ns) in [("user", kind.cpu.user_ns), ("system", kind.cpu.sys_ns)] {
            let value = seconds(ns);
            writeln!(out, "hugewise_gc_pause_cpu_seconds_total{{kind=\"{name}\",mode=\"{mode}\"}} {value}")?;
        }
    }
    for (name, help, durations) in [
        (
            "safepoint_seconds",
            "Time from the safepoint request to the end of the safepoint.",
            &summary.safepoints.total,
        ),
        ("time_to_safepoint_seconds", "Time to safepoint.", &summary.safepoints.time_to_safepoint),
    ] {
        if durations.count > 0 {
            family(&mut out, name, "summary", Some("seconds"), help)?;
            samples(&mut out, name, "", durations)?;
        }
    }
    for (name, help, value) in [
        (
            "gc_sys_above_user_pauses",
            "Pauses with more system time than user time.",
            summary.sys_heavy_pauses.count,
        ),
        ("gc_log_unread_lines", "Lines that look like a pause but could not be parsed.", summary.unread),
    ] {
        family(&mut out, name, "counter", None, help)?;
        writeln!(out, "hugewise_{name}_total {value}")?;
    }
    out.push_str("# EOF\n");
    Ok(out)
}

fn family(out: &mut String, name: &str, kind: &str, unit: Option<&str>, help: &str) -> fmt::Result {
    writeln!(out, "# TYPE hugewise_{name} {kind}")?;
    if let Some(unit) = unit {
        writeln!(out, "# UNIT hugewise_{name} {unit}")?;
    }
    writeln!(out, "# HELP hugewise_{name} {help}")
}

/// The samples of a summary; `label` is empty or the label that all of them have.
fn samples(out: &mut String, name: &str, label: &str, durations: &Durations) -> fmt::Result {
    let (comma, braced) = if label.is_empty() { ("", String::new()) } else { (",", format!("{{{label}}}")) };
    let quantile = |share| durations.quantile_ns(share).unwrap_or(0);
    for (share, ns) in [("0.5", quantile(0.5)), ("0.99", quantile(0.99)), ("1", durations.max_ns)] {
        writeln!(out, "hugewise_{name}{{{label}{comma}quantile=\"{share}\"}} {}", seconds(ns))?;
    }
    writeln!(out, "hugewise_{name}_count{braced} {}", durations.count)?;
    writeln!(out, "hugewise_{name}_sum{braced} {}", seconds(durations.total_ns))
}

/// Escapes the value of a label: the text comes from the log.
fn escaped(text: &str) -> String {
    plain(text).replace('\\', "\\\\").replace('"', "\\\"")
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
