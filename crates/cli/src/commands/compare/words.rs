//! Formatting of numbers and verdicts, shared by the text and the HTML page.

use hugewise_linux::shell;
use hugewise_measure::{
    comparison::{BackingResult, Better, Case, Comparison, Figure, Machine},
    statistics::Ratio,
    verdict::{MIN_CLAIMED_DIFFERENCE, Verdict},
};

use crate::output::{
    terminal::plain,
    words::{count, shortened},
};

/// Figures without a fraction.
const COUNTS: [&str; 2] = ["minor_faults", "major_faults"];

/// The unit in which all values of a figure are printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    factor: f64,
    unit: String,
    whole: bool,
}

impl Scale {
    /// The unit that suits `largest`.
    pub fn of(figure: &Figure, largest: f64) -> Scale {
        let scale = |factor: f64, unit: &str| Scale { factor, unit: unit.to_owned(), whole: false };
        match figure.unit.as_str() {
            "s" if largest > 0.0 && largest < 1e-3 => scale(1e6, "µs"),
            "s" if largest > 0.0 && largest < 1.0 => scale(1e3, "ms"),
            "bytes" => {
                let (power, unit) = match largest {
                    b if b < 1024.0 => (0, "B"),
                    b if b < 1024.0 * 1024.0 => (1, "KiB"),
                    b if b < 1024.0 * 1024.0 * 1024.0 => (2, "MiB"),
                    b if b < 1024.0 * 1024.0 * 1024.0 * 1024.0 => (3, "GiB"),
                    _ => (4, "TiB"),
                };
                scale(1024_f64.powi(-power), unit)
            }
            "" if figure.name.ends_with("share") => scale(100.0, "%"),
            "" => Scale { factor: 1.0, unit: String::new(), whole: COUNTS.contains(&figure.name.as_str()) },
            unit => scale(1.0, &printable(unit)),
        }
    }

    /// The number in this unit, without it.
    pub fn number(&self, value: f64) -> String {
        let value = value * self.factor;
        match value.abs() {
            huge if huge >= 1e15 => format!("{value:.2e}"),
            _ if self.whole => thousands(value),
            large if large >= 1000.0 => thousands(value),
            large if large >= 100.0 => format!("{value:.0}"),
            large if large >= 10.0 => format!("{value:.1}"),
            0.0 => "0".to_owned(),
            small if small < 1e-4 => format!("{value:.1e}"),
            small if small < 0.095 => format!("{value:.4}"),
            _ => format!("{value:.2}"),
        }
    }

    /// The number with its unit.
    pub fn value(&self, value: f64) -> String {
        format!("{} {}", self.number(value), self.unit).trim_end().to_owned()
    }

    /// The value in this unit, for plotting.
    pub fn scaled(&self, value: f64) -> f64 {
        value * self.factor
    }

    /// `wall (ms)`, or `requests (ops/s) ↑` if higher is better.
    pub fn heading(&self, figure: &Figure) -> String {
        let mut heading = shortened(&name(&figure.name), 30);
        if !self.unit.is_empty() && self.unit != heading {
            heading += &format!(" ({})", self.unit);
        }
        if figure.better == Better::Higher { heading + " ↑" } else { heading }
    }
}

/// The printed name of a figure: `gc_pause_total` is `gc pause total`.
pub fn name(figure: &str) -> String {
    printable(&figure.replace('_', " "))
}

fn thousands(value: f64) -> String {
    let sign = if value <= -0.5 { "-" } else { "" };
    sign.to_owned() + &count(value.abs().round() as u64)
}

/// A share as a percentage: `3.1 %`, `24 %`, `99.7 %`; below 1 it is never rounded to 100 %.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        nearly if nearly > 99.9 && nearly < 100.0 => "99.9 %".to_owned(),
        percent if percent.abs() < 9.95 || (percent > 99.0 && percent < 100.0) => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// `5 of 6`: the number of rounds that count, and of all rounds.
pub fn rounds(result: &BackingResult) -> String {
    match result.rounds + result.rounds_fallen_back {
        0 => "–".to_owned(),
        all => format!("{} of {all}", result.rounds),
    }
}

/// `0.551 [0.540–0.562]`
pub fn ratio(ratio: &Ratio) -> String {
    let digits = if ratio.high >= 10.0 { 1 } else { 3 };
    format!("{:.digits$} [{:.digits$}–{:.digits$}]", ratio.estimate, ratio.low, ratio.high)
}

/// The change of the figure itself: `45 % lower`. If higher is better, it is the inverse of the ratio.
pub fn change(ratio: f64, better: Better) -> String {
    let ratio = match better {
        Better::Lower => ratio,
        Better::Higher => 1.0 / ratio,
    };
    if ratio < 1.0 {
        format!("{} lower", percent(1.0 - ratio))
    } else if ratio >= 10.0 {
        format!("{ratio:.0} times as high")
    } else {
        format!("{} higher", percent(ratio - 1.0))
    }
}

/// The ends of the 95 % interval as changes of the figure: `−13 % to +2.1 %`.
fn bounds(ratio: &Ratio, better: Better) -> String {
    format!("{} to {}", signed_change(ratio.low, better), signed_change(ratio.high, better))
}

fn signed_change(ratio: f64, better: Better) -> String {
    let change = change(ratio, better);
    match (change.strip_suffix(" lower"), change.strip_suffix(" higher")) {
        (Some(share), _) => format!("−{share}"),
        (_, Some(share)) => format!("+{share}"),
        _ => change.replace(" times as high", "×"),
    }
}

/// The change in short form: `−45 %`; empty if it is smaller than [`MIN_CLAIMED_DIFFERENCE`].
pub fn signed(ratio: f64, better: Better) -> String {
    if (ratio - 1.0).abs() < MIN_CLAIMED_DIFFERENCE {
        return String::new();
    }
    signed_change(ratio, better)
}

/// The verdict as a short phrase.
pub fn verdict(verdict: Verdict, ratio: Option<Ratio>, better: Better) -> String {
    let change = || ratio.map(|ratio| change(ratio.estimate, better)).unwrap_or_default();
    match verdict {
        Verdict::Base => "the reference".to_owned(),
        Verdict::Faster => format!("faster: {}", change()),
        Verdict::Slower => format!("slower: {}", change()),
        Verdict::NoDifference => "no difference".to_owned(),
        Verdict::Inconclusive => match ratio {
            Some(ratio) if ratio.high < 1.0 || ratio.low > 1.0 => {
                let is_lower = (ratio.high < 1.0) == (better == Better::Lower);
                format!("inconclusive, probably {}", if is_lower { "lower" } else { "higher" })
            }
            _ => "inconclusive".to_owned(),
        },
        Verdict::FellBack => "fell back".to_owned(),
        Verdict::LeftOut => "skipped".to_owned(),
    }
}

/// `30 rounds per backing, in blocks of random order (seed 7), after 1 warm-up`, or `up to 8 starts per
/// backing, which take turns in random order (seed 7)`
pub fn design(comparison: &Comparison) -> String {
    let design = &comparison.design;
    let s = if design.rounds == 1 { "" } else { "s" };
    let (rounds, seed) = (design.rounds, design.seed);
    let warm_up = match design.warm_up {
        0 => String::new(),
        1 => ", after 1 warm-up".to_owned(),
        n => format!(", after {n} warm-ups"),
    };
    if let Some(live) = &comparison.live {
        return format!(
            "{rounds} pair{s} of turns of {} s of process {}, region {}, in random order (seed {seed})",
            live.turn_seconds, live.pid, live.region
        );
    }
    if design.turns {
        // The cases share the time, and end when they are decided.
        let up_to = if comparison.cases.len() > 1 { "up to " } else { "" };
        return format!(
            "{up_to}{rounds} start{s} per backing, which take turns in random order (seed {seed}){warm_up}"
        );
    }
    let memory = match design.fragmented {
        Some(left) => format!("; memory fragmented before each run, {left} of it free"),
        None => String::new(),
    };
    let each = if design.servers().is_empty() { "backing" } else { "combination of backings" };
    format!("{rounds} round{s} per {each}, in blocks of random order (seed {seed}){warm_up}{memory}")
}

/// Explanation of the columns of values and ratios.
pub fn legend(comparison: &Comparison) -> String {
    let reference = reference(comparison);
    let mut legend = format!(
        "Values are means; a ratio to {reference} is the geometric mean over blocks; below 1 is better."
    );
    if comparison.design.compares_off_heap() {
        legend += " Coverage is that of the Java heap, and of the memory outside it.";
    }
    let servers = comparison.design.servers();
    if !servers.is_empty() {
        legend += &format!(" Coverage is that of each server: {}.", servers.join(", "));
    }
    let mut figures = comparison.cases.iter().flat_map(|case| &case.figures);
    if figures.any(|figure| figure.better == Better::Higher) {
        return legend + " ↑ higher is better: the ratio is inverted.";
    }
    legend
}

/// `Linux 6.12.0 x86_64, AMD EPYC, 2 CPUs, 8GiB memory`
pub fn machine(machine: &Machine) -> String {
    let cpu = machine.cpu.as_ref().map(|cpu| format!("{cpu}, ")).unwrap_or_default();
    let s = if machine.cpus == 1 { "" } else { "s" };
    printable(&format!(
        "Linux {} {}, {cpu}{} CPU{s}, {} memory",
        machine.kernel, machine.architecture, machine.cpus, machine.memory
    ))
}

/// `2026-11-21 02:15 UTC`, from seconds since 1970-01-01 UTC.
pub fn moment(unix_s: u64) -> String {
    // Howard Hinnant, "chrono-compatible low-level date algorithms", civil_from_days: years start in
    // March, so that the leap day is the last day; an era has 400 years.
    let days = unix_s / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (unix_s / 3_600 % 24, unix_s / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// A command line quoted for a shell, at most `longest` characters of it.
pub fn command(words: &[String], longest: usize) -> String {
    shortened(&shell::line(words), longest)
}

/// Text of another program in one line.
pub fn printable(text: &str) -> String {
    let lines: Vec<&str> =
        text.lines().enumerate().map(|(n, line)| if n > 0 { line.trim_start() } else { line }).collect();
    plain(&lines.join(" "))
}

/// The result of one case as sentences, one for each kind of verdict. `rows`: the rows of the case with their
/// labels.
pub fn conclusions(comparison: &Comparison, rows: &[(&str, &BackingResult)], case: &Case) -> Vec<String> {
    let Some(figure) = case.figures.first() else { return Vec::new() };
    let reference = reference(comparison);
    let named = |kind: &str, verdict: Verdict, describe: &dyn Fn(&BackingResult) -> String| {
        let mut of_kind: Vec<_> = rows.iter().filter(|(_, row)| row.verdict == verdict).collect();
        let estimate = |row: &BackingResult| row.ratio.map_or(1.0, |ratio| ratio.estimate);
        of_kind.sort_by(|(_, a), (_, b)| estimate(a).total_cmp(&estimate(b)));
        let names: Vec<String> =
            of_kind.iter().map(|(label, row)| format!("{label}{}", describe(row))).collect();
        (!names.is_empty()).then(|| format!("{kind}: {}.", names.join(", ")))
    };
    let by = |row: &BackingResult| {
        let change = row.ratio.map(|ratio| change(ratio.estimate, figure.better)).unwrap_or_default();
        format!(" ({} {change})", name(&figure.name))
    };
    let interval = |row: &BackingResult| {
        row.ratio.map(|ratio| format!(" ({})", bounds(&ratio, figure.better))).unwrap_or_default()
    };
    let nothing = |_: &BackingResult| String::new();
    [
        named(&format!("Faster than {reference}"), Verdict::Faster, &by),
        named(&format!("Slower than {reference}"), Verdict::Slower, &by),
        named(&format!("No difference from {reference}"), Verdict::NoDifference, &interval),
        named("Inconclusive", Verdict::Inconclusive, &interval),
        named("Fell back, without the requested pages", Verdict::FellBack, &nothing),
        named("Skipped", Verdict::LeftOut, &nothing),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The name of the arm that all others are compared with.
pub fn reference(comparison: &Comparison) -> String {
    match comparison.design.arms.first() {
        Some(backing) if comparison.design.aa => format!("{backing} (A)"),
        Some(backing) => backing.to_string(),
        None => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, unit: &str) -> Figure {
        Figure { name: name.to_owned(), unit: unit.to_owned(), better: Better::Lower }
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (unix_s, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59 UTC"),
            (1_795_000_000, "2026-11-18 11:06 UTC"),
        ] {
            assert_eq!(moment(unix_s), text);
        }
    }

    #[test]
    fn values_are_printed_in_the_unit_of_the_largest() {
        for (unit, largest, value, text) in [
            ("s", 12.4, 0.5, "0.50 s"),
            ("s", 0.4, 0.05, "50.0 ms"),
            ("s", 0.0, 0.0, "0 s"),
            ("bytes", 3e9, 1.5e9, "1.40 GiB"),
            ("ns/op", 29.0, 15.83, "15.8 ns/op"),
            ("", 1e6, 1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(Scale::of(&figure("any", unit), largest).value(value), text);
        }
        assert_eq!(Scale::of(&figure("gc_sys_share", ""), 0.2).value(0.081), "8.10 %");
    }

    #[test]
    fn a_change_is_of_the_figure_itself() {
        assert_eq!(change(0.8, Better::Lower), "20 % lower");
        assert_eq!(change(0.8, Better::Higher), "25 % higher");
        assert_eq!(change(1.25, Better::Higher), "20 % lower");
        assert_eq!(signed(0.8, Better::Lower), "−20 %");
        assert_eq!(signed(0.0029, Better::Lower), "−99.7 %");
        assert_eq!(signed(0.0001, Better::Lower), "−99.9 %");
        assert_eq!(signed(12.0, Better::Lower), "12×");
        assert_eq!(signed(1.004, Better::Lower), "");
    }
}
