//! /proc/PID/smaps with arbitrary file names: no panic.

#![no_main]

use hugewise_linux::proc::smaps;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(vmas) = smaps::parse(text) {
        let _ = smaps::coverage(&vmas, None);
    }
});
