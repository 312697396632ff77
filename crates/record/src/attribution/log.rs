//! Pauses and safepoints of a recorded JVM, on the clock of the kernel's events.

use std::ops::Range;

use hugewise_jvm::gc_log::{Cpu, Event, Reader, Stamp};

use super::room::Room;

/// A stop-the-world pause of the garbage collector.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedPause {
    /// PID of the JVM.
    pub pid: u32,
    /// Id of the collection; `None` if the log has no ids.
    pub gc_id: Option<u64>,
    /// Kind of pause, such as `Young (Normal)`.
    pub kind: String,
    /// Cause of the collection, such as `System.gc()`; `None` if it is not logged.
    pub cause: Option<String>,
    /// Begin and end, in nanoseconds of CLOCK_MONOTONIC.
    pub span: Range<u64>,
    /// CPU time of the whole process during the pause, rounded to 10 ms; `None` if it is not logged.
    pub cpu: Option<Cpu>,
}

/// A safepoint, from the request to stop the threads until they continue.
#[derive(Clone, Debug, PartialEq)]
pub struct Safepoint {
    /// PID of the JVM.
    pub pid: u32,
    /// VM operation; `None` if it is not logged.
    pub operation: Option<String>,
    /// Request and end, in nanoseconds of CLOCK_MONOTONIC.
    pub span: Range<u64>,
    /// Time at which the last thread had stopped, in nanoseconds of CLOCK_MONOTONIC; `None` if it is not
    /// logged.
    pub reached_ns: Option<u64>,
}

/// A JVM's log and the accuracy of its times.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSource {
    /// PID of the JVM.
    pub pid: u32,
    /// Origin of the log.
    pub source: String,
    /// Whether the log has the clock of the kernel's events. Otherwise its times were fitted by the time at
    /// which its lines were read, and can be late by up to a second.
    pub monotonic: bool,
    /// Number of lines that look like pauses but cannot be parsed.
    pub unread: u64,
}

/// The recorded log of one JVM.
#[derive(Debug)]
pub(super) struct Log {
    source: LogSource,
    text: Vec<u8>,
    /// Number of the first line of each read, and the time of the read in nanoseconds.
    read: Vec<(u64, u64)>,
    lines: u64,
}

impl Log {
    pub fn new(pid: u32, source: String, monotonic: bool) -> Log {
        let source = LogSource { pid, source, monotonic, unread: 0 };
        Log { source, text: Vec::new(), read: Vec::new(), lines: 0 }
    }

    pub fn add(&mut self, ns: u64, lines: &[String]) {
        self.read.push((self.lines + 1, ns));
        self.lines += lines.len() as u64;
        for line in lines {
            // Keeps line numbers right even if a recorded line contains a line feed.
            self.text.extend(line.bytes().map(|byte| if byte == b'\n' { b' ' } else { byte }));
            self.text.push(b'\n');
        }
    }

    /// Time at which line `number` was read.
    fn read_ns(&self, number: u64) -> Option<u64> {
        let behind = self.read.partition_point(|(first, _)| *first <= number);
        Some(self.read.get(behind.checked_sub(1)?)?.1)
    }

    /// Adds the pauses and safepoints of the log for which there is room.
    pub fn describe(
        &self,
        pauses: &mut Vec<LoggedPause>,
        safepoints: &mut Vec<Safepoint>,
        room: &mut Room,
    ) -> LogSource {
        let mut source = self.source.clone();
        let (pid, monotonic) = (source.pid, source.monotonic);
        let offset = if monotonic { None } else { self.offset() };
        let at = |stamp: &Stamp| match monotonic {
            // Soon after boot, a time of CLOCK_MONOTONIC is parsed as an uptime of the JVM.
            true => stamp.monotonic_ns.or(stamp.uptime_ns),
            false => u64::try_from(i128::from(stamp.best_ns()?) + offset?).ok(),
        };
        each(&self.text, &mut |event| match event {
            Event::Pause(pause) if !pause.nested => {
                let Some(start) = at(&pause.start) else {
                    source.unread += 1;
                    return;
                };
                // A pause is kept twice; its attribution is about as large again.
                let texts = pause.kind.len() + pause.cause.map_or(0, str::len);
                if !room.take::<LoggedPause>(4) || !room.take::<u8>(2 * texts) {
                    return;
                }
                pauses.push(LoggedPause {
                    pid,
                    gc_id: pause.gc_id,
                    kind: pause.kind.to_owned(),
                    cause: pause.cause.map(str::to_owned),
                    span: start..start.saturating_add(pause.duration_ns),
                    cpu: pause.cpu,
                });
            }
            Event::Safepoint(safepoint) => {
                let Some(end) = at(&safepoint.end) else { return };
                if !room.take::<Safepoint>(1) || !room.take::<u8>(safepoint.operation.map_or(0, str::len)) {
                    return;
                }
                let start = end.saturating_sub(safepoint.total_ns);
                safepoints.push(Safepoint {
                    pid,
                    operation: safepoint.operation.map(str::to_owned),
                    span: start..end,
                    reached_ns: safepoint.time_to_safepoint_ns.map(|ns| start.saturating_add(ns).min(end)),
                });
            }
            Event::Unparsed(_) => source.unread += 1,
            _ => {}
        });
        source
    }

    /// Smallest offset of CLOCK_MONOTONIC from the times of the log: a line is read after it was written.
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

    fn reported(monotonic: bool, lines: &[&str], ns: u64) -> (Vec<LoggedPause>, Vec<Safepoint>, LogSource) {
        let mut log = Log::new(7, "here".to_owned(), monotonic);
        log.add(ns, &lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        let (mut pauses, mut safepoints) = (Vec::new(), Vec::new());
        let mut room = Room { left_bytes: 1 << 20, excess: 0 };
        let source = log.describe(&mut pauses, &mut safepoints, &mut room);
        assert_eq!(room.excess, 0);
        (pauses, safepoints, source)
    }

    #[test]
    fn another_clock_is_fitted_by_when_lines_were_read() {
        let (pauses, safepoints, source) = reported(false, &LINES, 102_001_000_000);
        assert_eq!(pauses[0].span, 101_500_000_000..102_000_000_000);
        assert_eq!(safepoints[0].span, 101_401_000_000..102_001_000_000);
        assert_eq!(safepoints[0].reached_ns, Some(101_501_000_000));
        assert!(!source.monotonic && source.unread == 0, "{source:?}");
    }

    #[test]
    fn the_clock_of_the_kernel_needs_no_fitting() {
        let lines = LINES
            .map(|line| line.replace("[2.000s]", "[77000000000ns]").replace("[2.001s]", "[77001000000ns]"));
        let (pauses, ..) = reported(true, &lines.each_ref().map(String::as_str), 99_000_000_000);
        assert_eq!(pauses[0].span, 76_500_000_000..77_000_000_000);
        assert_eq!(pauses[0].cpu.map(|cpu| cpu.sys_ns), Some(400_000_000));
    }
}
