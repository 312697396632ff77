//! Garbage collection logs, whole or damaged: no panic, and no more pauses than mentions of GC.

#![no_main]

use hugewise_jvm::gc_log::{Event, Reader, summary::Summary};
use hugewise_texts::decoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|log: &[u8]| {
    let mut summary = Summary::default();
    let mut reader = Reader::default();
    let mut take = |event: Event<'_>| summary.add(&event);
    let _ = reader.read(log, &mut take);
    reader.finish(&mut take);
    let count = |text: &[u8]| text.windows(2).filter(|pair| pair == b"GC").count() as u64;
    // In UTF-16 and in byte arrays of JSON only what the decoder takes out has these letters.
    let mut begins = count(log);
    let _ = decoder::each_line(log, |raw, plain, _| {
        begins += count(raw) + plain.iter().map(|line| count(line)).sum::<u64>();
    });
    assert!(summary.pauses() + summary.nested <= begins);
});
