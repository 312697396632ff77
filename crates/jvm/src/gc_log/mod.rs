//! Garbage collection logs of JDK 8 to 25: pauses with their CPU time, and safepoints.
//!
//! A [`Reader`] takes streams and tells [`Event`]s; what becomes of them is its caller's. It keeps no
//! more than one pause, whatever the size of the log. [`sets`] puts the files of a rotation in order,
//! [`summary`] adds up.

mod legacy;
mod lines;
mod names;
mod near;
mod numbers;
#[cfg(test)]
mod properties;
mod reader;
mod safepoints;
pub mod sets;
mod stamp;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod timeline;
mod unified;

use std::{ops::Range, path::Path};

pub use reader::Reader;
pub use stamp::Stamp;

/// The option that makes a JVM write the log. The `timenanos` decoration is CLOCK_MONOTONIC.
#[must_use]
pub fn log_option(file: &Path) -> String {
    format!(
        "-Xlog:gc*=info,gc+heap+coops=debug,pagesize=info:file=\"{}\":timenanos,level,tags:filecount=0",
        file.display()
    )
}

/// What a log tells, in its order.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// The application stood still for the collector. Concurrent phases are none of these.
    Pause(Pause<'a>),
    /// All threads stood still, for a collection or anything else.
    Safepoint(Safepoint<'a>),
    /// The collector set something up. After the last of these the heap is ready, pre-touch included.
    Init(Stamp),
    /// Where the heap was reserved. ZGC does not say.
    Heap(Range<u64>),
    /// A line that looks like a pause, CPU time or a safepoint, and could not be understood.
    Unread(Unread<'a>),
}

/// Where a line stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Which of the streams read, from 0.
    pub file: usize,
    /// From 1.
    pub line: u64,
}

/// A pause of all application threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pause<'a> {
    /// Where the log says it.
    pub place: Place,
    /// The JVMs of the log are counted from 0.
    pub run: u32,
    /// Id of the collection, where the log has ids.
    pub gc_id: Option<u64>,
    /// `Young (Normal)`, `Full`, `Mark End`: without what varies.
    pub kind: &'a str,
    /// `System.gc()`, where the log says it.
    pub cause: Option<&'a str>,
    /// When it began.
    pub start: Stamp,
    /// How long, in nanoseconds.
    pub duration_ns: u64,
    /// CPU time of the whole process meanwhile, where the collector logs it.
    pub cpu: Option<Cpu>,
    /// It lies within another pause, which is told after it and counts its time, too.
    pub nested: bool,
}

/// CPU time of a pause, in nanoseconds; the JVM tells it to 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// In user space.
    pub user_ns: u64,
    /// In the kernel.
    pub sys_ns: u64,
    /// By the clock on the wall.
    pub real_ns: u64,
}

/// All threads stood still.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Safepoint<'a> {
    /// Where the log says it.
    pub place: Place,
    /// The JVMs of the log are counted from 0.
    pub run: u32,
    /// For what; JDK 8 does not say.
    pub operation: Option<&'a str>,
    /// When it was over.
    pub end: Stamp,
    /// Until the last thread stood still, where the log says it.
    pub reaching_ns: Option<u64>,
    /// All of it.
    pub total_ns: u64,
}

/// What could not be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread<'a> {
    /// Where it is.
    pub place: Place,
    /// What it looks like.
    pub what: &'static str,
    /// The line, or its beginning; empty where it has passed already.
    pub text: &'a [u8],
}

/// Where the heap was reserved, from the beginning of a log.
#[must_use]
pub fn heap(log: &[u8]) -> Option<Range<u64>> {
    let mut heap = None;
    // Reading from memory cannot fail.
    let _ = Reader::default().read(log, &mut |event| {
        if let Event::Heap(range) = event {
            heap.get_or_insert(range);
        }
    });
    heap
}
