//! Logs with messages about large pages and facts of machines, whole or damaged: no panic, and each message is explained.

#![no_main]

use std::sync::LazyLock;

use hugewise_linux::{facts::Facts, hugepages::contiguity::Scan, root::Root};
use hugewise_texts::messages::{self, Context, Identity};
use libfuzzer_sys::fuzz_target;

static NOTHING: LazyLock<Facts> = LazyLock::new(|| Facts::gather(&Root::at("/nowhere"), Scan::Never));

fuzz_target!(|log: &[u8]| {
    let Ok(scanned) = messages::scan(log) else { return };
    let machine = Identity::default();
    let context = Context { facts: &NOTHING, machine: Some(&machine), command: &[], planned: None };
    let explained = messages::explain(&scanned, &context);
    assert_eq!(explained.len(), scanned.found.len());
    assert!(explained.iter().all(|one| !one.detail.is_empty()));
});
