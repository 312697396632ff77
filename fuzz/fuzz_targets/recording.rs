//! Recordings, whole or damaged: no panic.

#![no_main]

use hugewise_measure::recording::{Reader, Summary};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut summary = Summary::default();
    if let Ok(reader) = Reader::new(bytes) {
        for line in reader.flatten() {
            summary.add(&line);
        }
    }
});
