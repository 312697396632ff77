//! Aggregates the events of a log, in constant memory.

use hdrhistogram::Histogram;

use super::{Cpu, Event, LogPosition, Pause, Safepoint, Stall, Stamp, Unparsed, timeline::Timeline};

/// Kinds of pauses kept; further kinds are counted as one. A JVM has at most about 24.
const MAX_KINDS: usize = 40;
const OTHER_KINDS: &str = "other kinds";
/// Length of each list of worst pauses or safepoints.
const MAX_WORST: usize = 10;
/// Lines that do not parse and are kept.
const MAX_UNPARSED_LINES: usize = 20;
/// Bytes kept of such a line.
const MAX_UNPARSED_BYTES: usize = 160;
/// Longer durations count as one hour in quantiles.
const HOUR_NS: u64 = 3_600_000_000_000;

/// Aggregates of one log.
#[derive(Debug, Default)]
pub struct Summary {
    /// In the order of their first pauses.
    pub kinds: Vec<PauseKind>,
    /// Pauses within other pauses; counted in `kinds`, not in the totals.
    pub nested: u64,
    pub safepoints: Safepoints,
    /// Pauses with sys > user.
    pub sys_heavy_pauses: ListedPauses,
    /// Pauses whose threads mostly waited: wall-clock time above user and system time.
    pub waiting_pauses: ListedPauses,
    /// Waits of single threads by kind.
    pub stalls: Vec<(&'static str, Durations)>,
    /// The longest of them.
    pub worst_stalls: Vec<WorstStall>,
    /// Number of lines that resemble a pause, CPU time or a safepoint, and do not parse.
    pub unread: u64,
    /// The first 20 of them.
    pub unread_lines: Vec<UnparsedLine>,
    pub timeline: Timeline,
}

#[derive(Clone, Debug)]
pub struct PauseKind {
    /// `Young (Normal)`.
    pub name: String,
    pub durations: Durations,
    /// Number of pauses with CPU times.
    pub with_cpu: u64,
    /// Sum of their CPU times.
    pub cpu: Cpu,
}

/// Aggregate of durations.
#[derive(Clone, Debug)]
pub struct Durations {
    pub count: u64,
    pub total_ns: u64,
    pub max_ns: u64,
    spread: Histogram<u64>,
}

#[derive(Debug, Default)]
pub struct Safepoints {
    /// From the request to the resumption of the threads.
    pub total: Durations,
    /// Time to safepoint (TTSP); logged from JDK 8 on.
    pub time_to_safepoint: Durations,
    /// Those with the longest time to safepoint.
    pub worst: Vec<WorstSafepoint>,
}

#[derive(Clone, Debug)]
pub struct WorstSafepoint {
    /// Time to safepoint.
    pub time_to_safepoint_ns: u64,
    /// VM operation; `None` if the log lacks it.
    pub operation: Option<String>,
    pub end: Stamp,
    pub place: LogPosition,
}

/// A wait of one thread for memory.
#[derive(Clone, Debug)]
pub struct WorstStall {
    pub kind: &'static str,
    pub thread: String,
    pub end: Stamp,
    pub duration_ns: u64,
    pub place: LogPosition,
}

/// Pauses of one sort, and the worst of them.
#[derive(Debug, Default)]
pub struct ListedPauses {
    pub count: u64,
    /// Sum of their durations.
    pub total_ns: u64,
    /// Sum of their CPU times.
    pub cpu: Cpu,
    /// Sum of their times in which no thread ran, at least.
    pub waiting_ns: u64,
    /// Those with the most system time, or waiting.
    pub worst: Vec<ListedPause>,
}

/// A pause that is listed.
#[derive(Clone, Debug)]
pub struct ListedPause {
    /// `Young (Normal)`.
    pub kind: String,
    /// Cause of the collection, such as `System.gc()`; `None` if the log has no cause.
    pub cause: Option<String>,
    pub start: Stamp,
    pub duration_ns: u64,
    pub cpu: Cpu,
    /// What the list is sorted by: system time or waiting, in nanoseconds.
    size_ns: u64,
    pub place: LogPosition,
    /// Index of the JVM in the log, from 0.
    pub run: u32,
}

/// A line that does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnparsedLine {
    pub place: LogPosition,
    /// Event that the line resembles: `a pause`, `a safepoint` …
    pub what: &'static str,
    /// At most its first 160 bytes.
    pub text: String,
}

impl Summary {
    pub fn add(&mut self, event: &Event<'_>) {
        match event {
            Event::Pause(pause) => self.pause(pause),
            Event::Safepoint(safepoint) => self.safepoints.add(safepoint),
            Event::Stall(stall) => self.stall(stall),
            Event::Unparsed(unread) => self.unread(unread),
            Event::Init(_) | Event::Heap(_) => {}
        }
    }

    /// Number of pauses, nested ones excluded.
    pub fn pauses(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.durations.count).sum::<u64>() - self.nested
    }

    /// Number of pauses with CPU times.
    pub fn with_cpu(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.with_cpu).sum()
    }

    /// Duration and CPU time of all pauses, nested ones excluded.
    pub fn totals(&self) -> (u64, Cpu) {
        let total = self.timeline.total();
        (total.total_ns, total.cpu)
    }

    fn pause(&mut self, pause: &Pause<'_>) {
        if pause.nested {
            self.nested += 1;
        } else {
            self.timeline.add(pause);
            if let Some(cpu) = pause.cpu.filter(|cpu| cpu.sys_exceeds_user()) {
                self.sys_heavy_pauses.add(pause, cpu, cpu.sys_ns);
            }
            if let Some(cpu) = pause.cpu.filter(|cpu| cpu.waits(pause.duration_ns)) {
                self.waiting_pauses.add(pause, cpu, cpu.waiting_ns(pause.duration_ns));
            }
        }
        let kind = self.kind(pause.kind);
        kind.durations.add(pause.duration_ns);
        if let Some(cpu) = pause.cpu {
            kind.with_cpu += 1;
            kind.cpu.add(cpu);
        }
    }

    fn kind(&mut self, name: &str) -> &mut PauseKind {
        let found = self.kinds.iter().position(|kind| kind.name == name);
        let at = found.unwrap_or_else(|| {
            if self.kinds.len() <= MAX_KINDS {
                let full = self.kinds.len() == MAX_KINDS;
                let name = if full { OTHER_KINDS } else { name }.to_owned();
                let durations = Durations::default();
                self.kinds.push(PauseKind { name, durations, with_cpu: 0, cpu: Cpu::default() });
            }
            self.kinds.len() - 1
        });
        &mut self.kinds[at]
    }

    fn stall(&mut self, stall: &Stall<'_>) {
        let found = self.stalls.iter().position(|(kind, _)| *kind == stall.kind).unwrap_or_else(|| {
            self.stalls.push((stall.kind, Durations::default()));
            self.stalls.len() - 1
        });
        self.stalls[found].1.add(stall.duration_ns);
        keep_worst(
            &mut self.worst_stalls,
            stall.duration_ns,
            |worst| worst.duration_ns,
            || WorstStall {
                kind: stall.kind,
                thread: stall.thread.chars().take(MAX_UNPARSED_BYTES).collect(),
                end: stall.end,
                duration_ns: stall.duration_ns,
                place: stall.place,
            },
        );
    }

    /// Whether the log shows pauses or stalls whose time is not the work of the collector in user space.
    pub fn is_negative(&self) -> bool {
        self.sys_heavy_pauses.count > 0 || self.waiting_pauses.count > 0 || !self.stalls.is_empty()
    }

    fn unread(&mut self, unread: &Unparsed<'_>) {
        self.unread += 1;
        if self.unread_lines.len() < MAX_UNPARSED_LINES {
            let shown = &unread.text[..unread.text.len().min(MAX_UNPARSED_BYTES)];
            let text = String::from_utf8_lossy(shown).into_owned();
            self.unread_lines.push(UnparsedLine { place: unread.place, what: unread.what, text });
        }
    }
}

impl Cpu {
    pub fn add(&mut self, other: Cpu) {
        self.user_ns = self.user_ns.saturating_add(other.user_ns);
        self.sys_ns = self.sys_ns.saturating_add(other.sys_ns);
        self.real_ns = self.real_ns.saturating_add(other.real_ns);
    }
}

impl Durations {
    pub fn add(&mut self, ns: u64) {
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
        // Does not fail: the histogram grows up to one hour.
        let _ = self.spread.record(ns.min(HOUR_NS));
    }

    /// Quantile to three significant digits, `share` from 0 to 1; `None` without durations.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        (self.count > 0).then(|| self.spread.value_at_quantile(share).min(self.max_ns))
    }
}

impl Default for Durations {
    fn default() -> Durations {
        // The constructor accepts up to five digits.
        let spread = Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed"));
        Durations { count: 0, total_ns: 0, max_ns: 0, spread }
    }
}

impl Safepoints {
    fn add(&mut self, safepoint: &Safepoint<'_>) {
        self.total.add(safepoint.total_ns);
        let Some(time_to_safepoint_ns) = safepoint.time_to_safepoint_ns else { return };
        self.time_to_safepoint.add(time_to_safepoint_ns);
        keep_worst(
            &mut self.worst,
            time_to_safepoint_ns,
            |worst| worst.time_to_safepoint_ns,
            || WorstSafepoint {
                time_to_safepoint_ns,
                operation: safepoint.operation.map(str::to_owned),
                end: safepoint.end,
                place: safepoint.place,
            },
        );
    }
}

impl ListedPauses {
    /// `size`: system time, or waiting.
    fn add(&mut self, pause: &Pause<'_>, cpu: Cpu, size_ns: u64) {
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(pause.duration_ns);
        self.cpu.add(cpu);
        self.waiting_ns = self.waiting_ns.saturating_add(cpu.waiting_ns(pause.duration_ns));
        keep_worst(
            &mut self.worst,
            size_ns,
            |worst| worst.size_ns,
            || ListedPause {
                size_ns,
                kind: pause.kind.to_owned(),
                cause: pause.cause.map(str::to_owned),
                start: pause.start,
                duration_ns: pause.duration_ns,
                cpu,
                place: pause.place,
                run: pause.run,
            },
        );
    }
}

/// Inserts into a list sorted by descending size, of at most [`MAX_WORST`] entries.
fn keep_worst<T>(list: &mut Vec<T>, size: u64, of: impl Fn(&T) -> u64, make: impl FnOnce() -> T) {
    let at = list.partition_point(|kept| of(kept) >= size);
    if at < MAX_WORST {
        list.truncate(MAX_WORST - 1);
        list.insert(at, make());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_to_three_digits() {
        let mut durations = Durations::default();
        assert_eq!(durations.quantile_ns(0.5), None);
        for us in 1..=1000 {
            durations.add(us * 1000);
        }
        durations.add(u64::MAX);
        for (share, us) in [(0.1, 101.0), (0.5, 501.0), (0.99, 991.0)] {
            let found = durations.quantile_ns(share).unwrap_or(0) as f64 / 1000.0;
            assert!((found / us - 1.0).abs() < 0.002, "{share}: {found}");
        }
        assert_eq!((durations.count, durations.max_ns, durations.total_ns), (1001, u64::MAX, u64::MAX));
    }

    fn pause(kind: &str, n: u64, user_ns: u64, sys_ns: u64) -> Pause<'_> {
        let start = Stamp { uptime_ns: Some(n * 1_000_000_000), ..Stamp::default() };
        let cpu = Some(Cpu { user_ns, sys_ns, real_ns: 7 });
        let place = LogPosition { file: 0, line: n };
        Pause { place, run: 0, gc_id: None, kind, cause: None, start, duration_ns: 1000, cpu, nested: false }
    }

    #[test]
    fn system_time_counts_above_rounding_only_and_the_worst_pauses_are_kept() {
        let mut summary = Summary::default();
        for n in 0..100 {
            summary.add(&Event::Pause(pause("Young", n, 10_000_000, 20_000_000)));
            summary.add(&Event::Pause(pause("Full", n, 10_000_000, 40_000_000 + n)));
            summary.add(&Event::Pause(pause("Full", n, 90_000_000, 80_000_000)));
        }
        assert_eq!(summary.sys_heavy_pauses.count, 100);
        let lines: Vec<u64> = summary.sys_heavy_pauses.worst.iter().map(|worst| worst.place.line).collect();
        assert_eq!(lines, (90..100).rev().collect::<Vec<_>>());
        let counts: Vec<_> =
            summary.kinds.iter().map(|kind| (kind.name.as_str(), kind.durations.count)).collect();
        assert_eq!(counts, [("Young", 100), ("Full", 200)]);
    }

    #[test]
    fn invented_kinds_do_not_grow_without_bound() {
        let mut summary = Summary::default();
        for n in 0..1000 {
            summary.add(&Event::Pause(pause(&format!("Kind {n}"), n, 0, 0)));
        }
        assert_eq!(summary.kinds.len(), MAX_KINDS + 1);
        assert_eq!(summary.kinds.last().map(|kind| kind.durations.count), Some(1000 - MAX_KINDS as u64));
        assert_eq!(summary.pauses(), 1000);
    }

    #[test]
    fn the_timeline_keeps_sums_while_its_steps_grow() {
        let mut summary = Summary::default();
        for n in 0..100_000 {
            let run = u32::from(n >= 50_000);
            let pause = Pause { run, ..pause("Young", n % 50_000, 1, 2) };
            summary.add(&Event::Pause(pause));
        }
        let timeline = &summary.timeline;
        assert!(timeline.steps.len() <= 512, "{}", timeline.steps.len());
        assert_eq!(timeline.steps.iter().map(|step| step.pauses).sum::<u64>(), 100_000);
        assert_eq!(timeline.steps.iter().map(|step| step.cpu.sys_ns).sum::<u64>(), 200_000);
        assert_eq!(timeline.runs_ns, [49_999 * 1_000_000_000 + 1000]);
        let span = timeline.span_ns().unwrap_or(0);
        assert_eq!(span, 2 * (49_999 * 1_000_000_000 + 1000));
    }
}
