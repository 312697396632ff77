//! The garbage collection log that Hugewise switches on itself: pauses with their CPU time, when
//! the heap was ready, and where it lies.
//!
//! It is always written with the decorations of [`log_option`], by JDK 9 or later.

use std::{ops::Range, path::Path};

use hugewise_kernel::units::Bytes;

/// The option that makes a JVM write the log. The `timenanos` decoration is CLOCK_MONOTONIC.
#[must_use]
pub fn log_option(file: &Path) -> String {
    format!(
        "-Xlog:gc*=info,gc+heap+coops=debug,pagesize=info:file=\"{}\":timenanos,level,tags:filecount=0",
        file.display()
    )
}

/// What a log tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GcLog {
    /// Every pause, in order.
    pub pauses: Vec<Pause>,
    /// When the collector had set up its heap, pre-touch included, in nanoseconds of CLOCK_MONOTONIC.
    pub heap_ready_ns: Option<u64>,
    /// Where the heap was reserved. ZGC does not say; its heap is the mapping named `java_heap`.
    pub heap: Option<Range<u64>>,
}

/// A pause of all application threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pause {
    /// Id of the collection.
    pub gc_id: u64,
    /// How long, in seconds.
    pub duration_s: f64,
    /// CPU time of the whole process meanwhile, where the collector logs it.
    pub cpu: Option<Cpu>,
}

/// CPU time of a pause, in seconds, to 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    /// In user space.
    pub user_s: f64,
    /// In the kernel.
    pub sys_s: f64,
}

/// Reads a log; lines that say something else are passed over.
#[must_use]
pub fn parse(text: &str) -> GcLog {
    let mut log = GcLog::default();
    // The collection whose last line was a pause: a CPU line that follows belongs to it, whereas
    // one after a concurrent phase does not.
    let mut just_paused = None;
    for line in text.lines() {
        let Some(entry) = Entry::parse(line) else { continue };
        if entry.tags == "gc,init" {
            log.heap_ready_ns = Some(entry.time_ns);
        }
        if log.heap.is_none() {
            log.heap = heap_range(entry.message);
        }
        let Some((gc_id, message)) = collection(entry.message) else { continue };
        if let Some(cpu) = cpu(message) {
            if just_paused.take() == Some(gc_id) {
                if let Some(pause) = log.pauses.last_mut() {
                    pause.cpu = Some(cpu);
                }
            }
        } else if let Some(duration_s) = pause(message) {
            log.pauses.push(Pause { gc_id, duration_s, cpu: None });
            just_paused = Some(gc_id);
        } else if message.starts_with("Concurrent") {
            just_paused = None;
        }
    }
    log
}

/// `[1855ns][info ][gc,init      ] Pre-touch: Enabled`
struct Entry<'a> {
    time_ns: u64,
    tags: &'a str,
    message: &'a str,
}

impl<'a> Entry<'a> {
    fn parse(line: &'a str) -> Option<Entry<'a>> {
        let mut rest = line;
        let mut bracket = || {
            let (inside, after) = rest.strip_prefix('[')?.split_once(']')?;
            rest = after;
            Some(inside.trim())
        };
        let time_ns = bracket()?.strip_suffix("ns")?.parse().ok()?;
        let _level = bracket()?;
        let tags = bracket()?;
        Some(Entry { time_ns, tags, message: rest.strip_prefix(' ').unwrap_or(rest) })
    }
}

/// `GC(3) Pause Young …`, and of generational ZGC `GC(3) y: Pause Mark Start …`.
fn collection(message: &str) -> Option<(u64, &str)> {
    let (id, rest) = message.strip_prefix("GC(")?.split_once(") ")?;
    let rest = match rest.split_once(": ") {
        Some((generation, rest)) if generation.len() == 1 => rest,
        _ => rest,
    };
    Some((id.parse().ok()?, rest))
}

/// `Pause Young (Normal) (G1 Evacuation Pause) 25M->3M(1024M) 6.123ms`; its start has no duration.
fn pause(message: &str) -> Option<f64> {
    let milliseconds = message.strip_prefix("Pause ")?.strip_suffix("ms")?.rsplit(' ').next()?;
    Some(milliseconds.replace(',', ".").parse::<f64>().ok()? / 1e3)
}

/// `User=0.01s Sys=0.00s Real=0.01s`
fn cpu(message: &str) -> Option<Cpu> {
    let mut seconds = ["User=", "Sys=", "Real="]
        .into_iter()
        .zip(message.split(' '))
        .map(|(key, word)| word.strip_prefix(key)?.strip_suffix('s')?.replace(',', ".").parse::<f64>().ok());
    Some(Cpu { user_s: seconds.next()??, sys_s: seconds.next()?? })
}

/// `Heap:  min=1G max=1G base=0x00000000c0000000 size=1G page_size=2M`, or
/// `Heap address: 0x00000000e0000000, size: 512 MB, Compressed Oops mode: 32-bit`.
fn heap_range(message: &str) -> Option<Range<u64>> {
    let (start, size) = if let Some(rest) = message.strip_prefix("Heap: ") {
        let field = |key: &str| rest.split_whitespace().find_map(|word| word.strip_prefix(key));
        (field("base=")?, field("size=")?.to_owned())
    } else {
        let (start, rest) = message.strip_prefix("Heap address: ")?.split_once(", size: ")?;
        (start, rest.split(", ").next()?.replace(' ', ""))
    };
    let start = u64::from_str_radix(start.strip_prefix("0x")?, 16).ok()?;
    let size: Bytes = size.parse().ok()?;
    Some(start..start.checked_add(size.0)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const G1: &str = "\
[100ns][info ][gc,init      ] Heap Region Size: 1M
[150ns][info ][gc,init      ] Periodic GC: Disabled
[90ns][info ][pagesize     ] Heap:  min=256M max=512M base=0x00000000e0000000 page_size=4K size=512M
[200ns][info ][gc,start    ] GC(0) Pause Young (Concurrent Start) (G1 Humongous Allocation)
[210ns][info ][gc          ] GC(0) Pause Young (Concurrent Start) (G1 Humongous Allocation) 25M->3M(1024M) 6.500ms
[211ns][info ][gc,cpu      ] GC(0) User=0.01s Sys=0.02s Real=0.01s
[220ns][info ][gc          ] GC(1) Concurrent Mark Cycle
[230ns][info ][gc          ] GC(1) Pause Remark 30M->30M(1024M) 1,500ms
[231ns][info ][gc,cpu      ] GC(1) User=0,00s Sys=0,00s Real=0,00s
[240ns][info ][gc          ] GC(1) Concurrent Mark Cycle 16.1ms
[241ns][info ][gc,cpu      ] GC(1) User=9.00s Sys=9.00s Real=9.00s
";

    #[test]
    fn pauses_carry_their_cpu_time_and_concurrent_phases_do_not_count() {
        let log = parse(G1);
        let cpu = |user_s, sys_s| Some(Cpu { user_s, sys_s });
        assert_eq!(
            log.pauses,
            [
                Pause { gc_id: 0, duration_s: 0.0065, cpu: cpu(0.01, 0.02) },
                Pause { gc_id: 1, duration_s: 0.0015, cpu: cpu(0.0, 0.0) },
            ]
        );
        assert_eq!(log.heap_ready_ns, Some(150));
        assert_eq!(log.heap, Some(0xe000_0000..0x1_0000_0000));
    }

    #[test]
    fn generational_zgc_and_the_older_heap_line_are_read() {
        let log = parse(
            "[1ns][debug][gc,heap,coops] Heap address: 0x00000000e0000000, size: 512 MB, Compressed Oops mode: 32-bit\n\
             [2ns][info ][gc,phases    ] GC(4) y: Pause Mark Start 0.006ms\n",
        );
        assert_eq!(log.heap, Some(0xe000_0000..0x1_0000_0000));
        assert_eq!(log.pauses, [Pause { gc_id: 4, duration_s: 6e-6, cpu: None }]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "(.|\n)*") {
            let _ = parse(&text);
        }

        #[test]
        fn a_damaged_log_is_read_without_panic(cut in 0..G1.len(), junk in ".{0,12}") {
            let _ = parse(&format!("{}{junk}{}", &G1[..cut], &G1[cut..]));
        }
    }
}
