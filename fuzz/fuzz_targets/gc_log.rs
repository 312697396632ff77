//! Garbage collection logs, whole or damaged: no panic, and no more pauses than lines.

#![no_main]

use hugewise_jvm::gc_log::{Event, Reader, summary::Summary};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|log: &[u8]| {
    let mut summary = Summary::default();
    let mut reader = Reader::default();
    let mut take = |event: Event<'_>| summary.add(&event);
    let _ = reader.read(log, &mut take);
    reader.finish(&mut take);
    let begins = log.windows(2).filter(|pair| pair == b"GC").count() as u64;
    assert!(summary.pauses() + summary.nested <= begins);
});
