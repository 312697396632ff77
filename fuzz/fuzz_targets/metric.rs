//! Metrics on the command line: no panic.

#![no_main]

use hugewise_measure::workload::metric::Metric;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = text.parse::<Metric>();
});
