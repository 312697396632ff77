//! Logs in wrappings, whole or damaged: no panic, and the text does not grow without bound.

#![no_main]

use hugewise_texts::decoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|log: &[u8]| {
    let mut bytes = 0;
    let mut input = decoder::open(log).ok();
    if let Some(input) = &mut input {
        let _ = decoder::each_line(input, |_, plain, _| {
            bytes += plain.iter().map(Vec::len).sum::<usize>();
        });
    }
    // gzip grows by about a thousand times, and a line is decoded by each of its layers once.
    assert!(bytes <= 1 << 28 || log.len() > 1 << 18);
});
