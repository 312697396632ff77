//! Garbage collection logs, whole or damaged: no panic.

#![no_main]

use hugewise_jvm::gc_log::{Reader, heap, summary::Summary};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|log: &[u8]| {
    let mut summary = Summary::default();
    let mut reader = Reader::default();
    let mut take = |event: hugewise_jvm::gc_log::Event<'_>| summary.add(&event);
    let _ = reader.read(log, &mut take);
    reader.finish(&mut take);
    let _ = heap(log);
});
