//! Logs with messages about large pages, whole or damaged: no panic.

#![no_main]

use hugewise_texts::messages;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|log: &[u8]| {
    let _ = messages::scan(log);
});
