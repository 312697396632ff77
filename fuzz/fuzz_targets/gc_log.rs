//! Garbage collection logs, whole or damaged: no panic.

#![no_main]

use hugewise_jvm::gc_log;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = gc_log::parse(text);
});
