//! The touch experiment: random one-byte reads of a buffer.
//!
//! The time of such a read depends only on the TLB and the caches, so that it shows the largest possible gain
//! from huge pages. The reads are independent of each other and overlap, as those of a program do.

use std::{
    io::{self, BufRead, Write},
    num::NonZeroUsize,
    ops::ControlFlow,
    str::FromStr,
    time::Instant,
};

use hugewise_linux::{
    cpu::counters::{Counters, Counts},
    hugepages::{backing::Backing, page_sizes::PageSizes},
    pages::coverage::Coverage,
    reading::{Reading, Reason},
    root::Root,
    sys::memory::NonEmptyBytes,
    units::Bytes,
};
use hugewise_memory::{
    pretouch::Pretouch,
    region::{self, Region},
};
use serde::{Deserialize, Serialize};

/// First line of a worker that takes turns, written after it populated its memory and warmed up.
pub const READY: &str = "ready";

/// Initial state of the random generator, so that all runs read the same bytes in the same order.
pub const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Clone, Copy, Debug)]
pub struct Touch {
    pub bytes: Bytes,
    /// The backing; there is no fallback to another.
    pub backing: Backing,
    /// Reads per iteration.
    pub reads: u64,
    /// Counted iterations.
    pub iterations: usize,
    /// Warm-up iterations, which are not counted.
    pub warm_up: usize,
}

/// One command to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Reads whose time counts.
    pub reads: u64,
    /// Reads before them, which refill the caches after the turn of another arm.
    pub uncounted: u64,
}

impl FromStr for Turn {
    type Err = io::Error;

    fn from_str(line: &str) -> io::Result<Turn> {
        let parsed = line.split_once(' ').and_then(|(reads, uncounted)| {
            Some(Turn { reads: reads.parse().ok()?, uncounted: uncounted.trim().parse().ok()? })
        });
        parsed.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("'{line}' is not READS UNCOUNTED"))
        })
    }
}

/// Result of a touch run.
#[derive(Debug, Serialize, Deserialize)]
pub struct TouchResult {
    pub bytes: Bytes,
    pub backing: Backing,
    /// Time to populate the buffer, in seconds.
    pub populate_s: f64,
    /// Mean time of a read in each iteration, in nanoseconds.
    pub ns_per_op: Vec<f64>,
    /// Coverage of the buffer, read after the last iteration.
    pub coverage: Reading<Coverage>,
    /// Hardware counters over all counted iterations.
    pub counts: Counts,
    /// Reads in all counted iterations.
    pub operations: u64,
    /// Sum of all bytes read, so that the compiler cannot remove the reads.
    pub checksum: u64,
}

/// Runs the experiment in this process.
pub fn run(touch: &Touch) -> Result<TouchResult, Reason> {
    let mut buffer = Buffer::populate(touch)?;
    let mut ns_per_op = Vec::with_capacity(touch.iterations);
    let (timed, counts) = Counters::open(&Root::live()).count_during(|| {
        (0..touch.iterations).try_for_each(|_| buffer.time(touch.reads).map(|ns| ns_per_op.push(ns)))
    });
    timed?;
    let operations = touch.reads * touch.iterations as u64;
    Ok(TouchResult { ns_per_op, counts, operations, ..buffer.result() })
}

/// Takes turns: answers each line of `commands` with one line, and ends with the commands.
///
/// A command is `READS UNCOUNTED`: the worker reads `UNCOUNTED` bytes, then `READS` bytes, and answers with
/// the mean time of the latter reads in nanoseconds. The first line that it writes is
/// [`READY`].
pub fn take_turns(
    touch: &Touch,
    commands: impl BufRead,
    mut answers: impl Write,
) -> Result<TouchResult, Reason> {
    let mut buffer = Buffer::populate(touch)?;
    let mut ns_per_op = Vec::new();
    let mut operations = 0;
    let mut answer = |text: &str| writeln!(answers, "{text}").and_then(|()| answers.flush());
    answer(READY)?;
    for command in commands.lines() {
        let turn: Turn = command?.parse()?;
        buffer.read(turn.uncounted)?;
        let ns = buffer.time(turn.reads)?;
        answer(&ns.to_string())?;
        ns_per_op.push(ns);
        operations += turn.reads;
    }
    Ok(TouchResult { ns_per_op, operations, ..buffer.result() })
}

/// The populated buffer, with the state of its reader.
struct Buffer {
    region: Region,
    bytes: Bytes,
    backing: Backing,
    populate_s: f64,
    state: u64,
    checksum: u64,
}

impl Buffer {
    /// Reserves and populates the buffer, and makes the reads of the warm-up.
    fn populate(touch: &Touch) -> Result<Buffer, Reason> {
        let sizes = page_sizes(&Root::live())?;
        let mut region = region::reserve(touch.bytes, &[touch.backing], &sizes)?;
        // By a single thread, as a program populates memory that it touches itself.
        let how = Pretouch { threads: Some(NonZeroUsize::MIN), ..Pretouch::default() };
        let pretouched = region.pretouch(&how, &mut |_| ControlFlow::Continue(()));
        let populate_s = pretouched.elapsed.as_secs_f64();
        if let Some(stopped) = pretouched.stopped {
            return Reason::err(format!("populating {}: {stopped}", touch.bytes));
        }
        for (i, byte) in region.bytes_mut().iter_mut().enumerate() {
            *byte = i as u8;
        }
        let mut buffer = Buffer {
            region,
            bytes: touch.bytes,
            backing: touch.backing,
            populate_s,
            state: SEED,
            checksum: 0,
        };
        (0..touch.warm_up).try_for_each(|_| buffer.read(touch.reads))?;
        Ok(buffer)
    }

    fn read(&mut self, reads: u64) -> Result<(), Reason> {
        let Some(bytes) = NonEmptyBytes::new(self.region.bytes()) else {
            return Reason::err("the buffer is empty: give a size above 0");
        };
        self.checksum += read_randomly(bytes, &mut self.state, reads);
        Ok(())
    }

    /// Mean time of a read, in nanoseconds.
    fn time(&mut self, reads: u64) -> Result<f64, Reason> {
        let begin = Instant::now();
        self.read(reads)?;
        Ok(begin.elapsed().as_nanos() as f64 / reads.max(1) as f64)
    }

    /// The result without the times, with the coverage read now.
    fn result(&self) -> TouchResult {
        TouchResult {
            bytes: self.bytes,
            backing: self.backing,
            populate_s: self.populate_s,
            ns_per_op: Vec::new(),
            coverage: self.region.coverage(),
            counts: Counts::default(),
            operations: 0,
            checksum: self.checksum,
        }
    }
}

/// The page sizes, for a process that measures one size.
pub(crate) fn page_sizes(root: &Root) -> Result<PageSizes, Reason> {
    PageSizes::read(root)
        .map_err(|reason| Reason::new(format!("the page sizes of this machine are unknown: {reason}")))
}

/// Sums `reads` bytes of `buffer` at random offsets.
///
/// The generator is xorshift64 (Marsaglia 2003, "Xorshift RNGs", with the triple 13, 7, 17); the offset is
/// the upper half of its product with the length, which avoids a division.
#[inline(never)]
fn read_randomly(buffer: NonEmptyBytes, state: &mut u64, reads: u64) -> u64 {
    let mut x = *state;
    let mut sum = 0u64;
    for _ in 0..reads {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        sum = sum.wrapping_add(u64::from(buffer.at(x)));
    }
    *state = x;
    sum
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn the_same_bytes_are_read_on_every_backing() -> Result<(), Box<dyn Error + Send + Sync>> {
        let touch = |backing| {
            run(&Touch { bytes: Bytes(3 << 20), backing, reads: 10_000, iterations: 3, warm_up: 1 })
        };
        let (base, thp) = (touch(Backing::Base)?, touch(Backing::Thp)?);
        assert_eq!(base.checksum, thp.checksum);
        assert_eq!(base.ns_per_op.len(), 3);
        assert_eq!(base.coverage.known().and_then(Coverage::share), Some(0.0));
        Ok(())
    }

    #[test]
    fn every_part_of_the_buffer_is_read_alike() {
        let mut buffer = vec![0u8; 8];
        let mut state = SEED;
        for place in 0..8 {
            buffer.fill(0);
            buffer[place] = 1;
            let some = NonEmptyBytes::new(&buffer).expect("eight bytes");
            let hits = read_randomly(some, &mut state, 80_000);
            assert!((9_500..10_500).contains(&hits), "{place}: {hits}");
        }
    }
}
