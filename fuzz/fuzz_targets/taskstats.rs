//! What the kernel tells of threads by netlink: no panic, and whatever it is, it is of a known layout.

#![no_main]

use hugewise_linux::proc::taskstats::TaskStats;
use libfuzzer_sys::fuzz_target;

/// Length, kind, flags, sequence and port; command, version and two bytes of nothing.
const HEADERS: [u8; 20] = [0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0];

/// A datagram as the kernel builds one: the statistics within the answer about a thread.
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
    if let Ok(Some(told)) = TaskStats::of_datagram(&nested(statistics)) {
        assert!(told.name.chars().count() <= 32);
        assert!(statistics.len() >= 64);
        // Older kernels do not tell it, whatever stands behind what they do.
        assert!(told.version >= 11 || told.delays.compact.is_none());
    }
});
