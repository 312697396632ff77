//! taskstats of threads by netlink: no panic, and each accepted message has a known layout.

#![no_main]

use hugewise_linux::proc::taskstats::TaskStats;
use libfuzzer_sys::fuzz_target;

/// Length, type, flags, sequence and port; command, version and two reserved bytes.
const HEADERS: [u8; 20] = [0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0];

/// A datagram as built by the kernel: statistics nested in the answer for a thread.
fn nested(statistics: &[u8]) -> Vec<u8> {
    let attribute = |kind: u16, value: &[u8]| {
        let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let within = [attribute(1, &7u32.to_ne_bytes()), attribute(3, statistics)].concat();
    [&HEADERS[..], &attribute(4, &within)].concat()
}

fuzz_target!(|bytes: &[u8]| {
    let _ = TaskStats::of_datagram(bytes);
    let statistics = &bytes[..bytes.len().min(4096)];
    if let Ok(Some(reported)) = TaskStats::of_datagram(&nested(statistics)) {
        assert!(reported.name.chars().count() <= 32);
        assert!(statistics.len() >= 64);
        // Older kernels do not report the field, whatever bytes follow their struct.
        assert!(reported.version >= 11 || reported.delays.compact.is_none());
    }
});
