//! The pauses and safepoints of a recorded JVM, on the clock of the kernel's events.

use std::ops::Range;

use hugewise_jvm::gc_log::{Cpu, Event, Reader, Stamp};

/// All threads of a JVM stood still for its collector.
#[derive(Clone, Debug, PartialEq)]
pub struct Stop {
    /// The JVM.
    pub pid: u32,
    /// Id of the collection, where the log has ids.
    pub gc_id: Option<u64>,
    /// `Young (Normal)`.
    pub kind: String,
    /// `System.gc()`, where the log says it.
    pub cause: Option<String>,
    /// From when to when, in nanoseconds of CLOCK_MONOTONIC.
    pub span: Range<u64>,
    /// CPU time of the whole process meanwhile, to 10 ms, where the collector logs it.
    pub cpu: Option<Cpu>,
}

/// A safepoint: threads were asked to stop, stood still, and went on.
#[derive(Clone, Debug, PartialEq)]
pub struct Safepoint {
    /// The JVM.
    pub pid: u32,
    /// For what.
    pub operation: Option<String>,
    /// From asking to going on, in nanoseconds of CLOCK_MONOTONIC.
    pub span: Range<u64>,
    /// When the last thread stood still; nothing where the log does not say.
    pub reached_ns: Option<u64>,
}

/// A JVM's log, and how well its times fit.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSource {
    /// The JVM.
    pub pid: u32,
    /// Where it comes from.
    pub source: String,
    /// Its clock is that of the kernel's events. Otherwise its times were fitted by when its lines were
    /// read, and may be late by up to a second.
    pub monotonic: bool,
    /// Lines that look like a pause, and could not be understood.
    pub unread: u64,
}

/// The log of one JVM, as it was recorded.
#[derive(Debug)]
pub(super) struct Log {
    pub pid: u32,
    pub source: String,
    pub monotonic: bool,
    text: Vec<u8>,
    /// The first line of those that were read together, and when they were.
    read: Vec<(u64, u64)>,
    lines: u64,
}

impl Log {
    pub fn new(pid: u32, source: String, monotonic: bool) -> Log {
        Log { pid, source, monotonic, text: Vec::new(), read: Vec::new(), lines: 0 }
    }

    pub fn add(&mut self, ns: u64, lines: &[String]) {
        self.read.push((self.lines + 1, ns));
        self.lines += lines.len() as u64;
        for line in lines {
            // A line is one line, whatever was recorded.
            self.text.extend(line.bytes().map(|byte| if byte == b'\n' { b' ' } else { byte }));
            self.text.push(b'\n');
        }
    }

    /// When line `number` was read.
    fn read_ns(&self, number: u64) -> Option<u64> {
        let behind = self.read.partition_point(|(first, _)| *first <= number);
        Some(self.read.get(behind.checked_sub(1)?)?.1)
    }

    /// What it tells, in the order of its lines.
    pub fn tell(&self, pauses: &mut Vec<Stop>, safepoints: &mut Vec<Safepoint>) -> LogSource {
        let mut source =
            LogSource { pid: self.pid, source: self.source.clone(), monotonic: self.monotonic, unread: 0 };
        let offset = if self.monotonic { Some(0) } else { self.offset() };
        let at = |stamp: &Stamp| match (self.monotonic, offset) {
            // Soon after the start of a machine its clock looks like the JVM's age.
            (true, _) => stamp.monotonic_ns.or(stamp.uptime_ns),
            (false, Some(offset)) => u64::try_from(i128::from(stamp.best_ns()?) + offset).ok(),
            (false, None) => None,
        };
        each(&self.text, &mut |event| match event {
            Event::Pause(pause) if !pause.nested => {
                let Some(start) = at(&pause.start) else {
                    source.unread += 1;
                    return;
                };
                pauses.push(Stop {
                    pid: self.pid,
                    gc_id: pause.gc_id,
                    kind: pause.kind.to_owned(),
                    cause: pause.cause.map(str::to_owned),
                    span: start..start.saturating_add(pause.duration_ns),
                    cpu: pause.cpu,
                });
            }
            Event::Safepoint(safepoint) => {
                let Some(end) = at(&safepoint.end) else { return };
                let start = end.saturating_sub(safepoint.total_ns);
                safepoints.push(Safepoint {
                    pid: self.pid,
                    operation: safepoint.operation.map(str::to_owned),
                    span: start..end,
                    reached_ns: safepoint.reaching_ns.map(|ns| start.saturating_add(ns).min(end)),
                });
            }
            Event::Unread(_) => source.unread += 1,
            _ => {}
        });
        source
    }

    /// What to add to its stamps: a line was read after it was written, so the least that fits.
    fn offset(&self) -> Option<i128> {
        let mut least: Option<i128> = None;
        each(&self.text, &mut |event| {
            let (line, end) = match event {
                Event::Pause(pause) => {
                    let end = pause.start.best_ns().and_then(|ns| ns.checked_add(pause.duration_ns));
                    (pause.place.line, end)
                }
                Event::Safepoint(safepoint) => (safepoint.place.line, safepoint.end.best_ns()),
                _ => return,
            };
            if let (Some(read), Some(end)) = (self.read_ns(line), end) {
                let offset = i128::from(read) - i128::from(end);
                least = Some(least.map_or(offset, |least| least.min(offset)));
            }
        });
        least
    }
}

fn each(text: &[u8], take: &mut impl FnMut(Event<'_>)) {
    let mut reader = Reader::default();
    // Reading from memory cannot fail.
    let _ = reader.read(text, take);
    reader.finish(take);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: [&str; 3] = [
        "[2.000s][info][gc] GC(0) Pause Young (Allocation Failure) 6M->2M(9M) 500.000ms",
        "[2.000s][info][gc,cpu] GC(0) User=0.01s Sys=0.40s Real=0.50s",
        "[2.001s][info][safepoint] Safepoint \"A\", Time since last: 1 ns, Reaching safepoint: 100000000 ns, \
         At safepoint: 500000000 ns, Total: 600000000 ns",
    ];

    fn told(monotonic: bool, lines: &[&str], ns: u64) -> (Vec<Stop>, Vec<Safepoint>, LogSource) {
        let mut log = Log::new(7, "here".to_owned(), monotonic);
        log.add(ns, &lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        let (mut pauses, mut safepoints) = (Vec::new(), Vec::new());
        let source = log.tell(&mut pauses, &mut safepoints);
        (pauses, safepoints, source)
    }

    #[test]
    fn another_clock_is_fitted_by_when_lines_were_read() {
        let (pauses, safepoints, source) = told(false, &LINES, 102_001_000_000);
        assert_eq!(pauses[0].span, 101_500_000_000..102_000_000_000);
        assert_eq!(safepoints[0].span, 101_401_000_000..102_001_000_000);
        assert_eq!(safepoints[0].reached_ns, Some(101_501_000_000));
        assert!(!source.monotonic && source.unread == 0, "{source:?}");
    }

    #[test]
    fn the_clock_of_the_kernel_needs_no_fitting() {
        let lines = LINES
            .map(|line| line.replace("[2.000s]", "[77000000000ns]").replace("[2.001s]", "[77001000000ns]"));
        let (pauses, ..) = told(true, &lines.each_ref().map(String::as_str), 99_000_000_000);
        assert_eq!(pauses[0].span, 76_500_000_000..77_000_000_000);
        assert_eq!(pauses[0].cpu.map(|cpu| cpu.sys_ns), Some(400_000_000));
    }
}
