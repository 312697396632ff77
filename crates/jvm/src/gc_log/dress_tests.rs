//! A log in any wrapping has the pauses of the plain log: every wrapping, and every pair of them.

use hugewise_texts::{
    decoder,
    testing::dresses::{DRESSES, QUOTES},
};

use super::{Event, Reader};

const G1: &[u8] = include_bytes!("../../../cli/tests/field/oracle-plain.log");
const CMS: &[u8] = include_bytes!("../../../cli/tests/field/jdk8-cms-heapatgc.log");
const PARALLEL: &[u8] = include_bytes!("../../../cli/tests/field/gc.log.0");
const ZGC: &[u8] = b"[0.021s][info][gc] Using The Z Garbage Collector
[1.600s][info][gc,phases] GC(4) y: Pause Mark Start 0.012ms
[1.600s][info][safepoint] Safepoint \"ZMarkStart\", Time since last: 11 ns, Reaching safepoint: 20000000 ns, Cleanup: 3 ns, At safepoint: 4 ns, Total: 21500000 ns
[1.700s][info][gc,phases] GC(4) y: Concurrent Mark 12.400ms
[1.701s][info][gc,phases] GC(4) Y: Pause Relocate Start (Major) 0.008ms
";
const BARE: &[u8] = b"GC(0) Pause Remark 3.100ms
GC(0) User=0.01s Sys=0.05s Real=0.00s
GC(1) Pause Full (System.gc()) 9M->4M(96M) 2.500ms
";

/// The pauses and safepoints of a log, without their places; and the number of lines that do not parse.
fn summary(log: &[u8]) -> (Vec<String>, usize) {
    let (mut said, mut unread) = (Vec::new(), 0);
    let mut take = |event: Event<'_>| match event {
        Event::Pause(pause) => said.push(format!(
            "{} {:?} {:?} {:?} {} {:?}",
            pause.kind, pause.cause, pause.gc_id, pause.start, pause.duration_ns, pause.cpu
        )),
        Event::Safepoint(stop) => said.push(format!("{:?} {} {:?}", stop.operation, stop.total_ns, stop.end)),
        Event::Unparsed(_) => unread += 1,
        _ => {}
    };
    let mut reader = Reader::default();
    if let Ok(input) = decoder::open(log) {
        let _ = reader.read(input, &mut take);
    }
    reader.finish(&mut take);
    (said, unread)
}

fn check(names: &str, log: &[u8], plain: &(Vec<String>, usize), failed: &mut Vec<String>) {
    let dressed = summary(log);
    if dressed != *plain {
        let at = plain.0.iter().zip(&dressed.0).find(|(a, b)| a != b);
        failed.push(format!(
            "{names}: {} events of {}, {} unread: {at:?}",
            dressed.0.len(),
            plain.0.len(),
            dressed.1
        ));
    }
}

const LOGS: [(&str, &[u8]); 5] =
    [("g1", G1), ("cms", CMS), ("parallel", PARALLEL), ("zgc", ZGC), ("bare", BARE)];

#[test]
fn a_log_in_any_dress_has_the_same_pauses() {
    let mut failed = Vec::new();
    for (log_name, log) in LOGS {
        let plain = summary(log);
        assert!(!plain.0.is_empty(), "{log_name}");
        for (name, dress) in DRESSES.iter().chain(QUOTES) {
            check(&format!("{log_name} in {name}"), &dress(log), &plain, &mut failed);
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {}:\n{}",
        failed.len(),
        LOGS.len() * (DRESSES.len() + QUOTES.len()),
        failed.join("\n")
    );
}

/// Dresses of bytes cannot be put into dresses of lines of text. An object with one byte on each line is decoded if nothing
/// is around these lines.
fn is_of_bytes(name: &str) -> bool {
    name.starts_with("utf-16") || ["gzip", "nul run", "json pretty bytes"].contains(&name)
}

#[test]
fn a_log_in_any_two_dresses_has_the_same_pauses() {
    let mut failed = Vec::new();
    let mut pairs = 0;
    let full = std::env::var_os("HUGEWISE_FULL").is_some();
    for (log_name, log) in LOGS {
        let plain = summary(log);
        for (inner_name, inner) in DRESSES.iter().filter(|(name, _)| !is_of_bytes(name)) {
            let once = inner(log);
            for (outer_name, outer) in DRESSES {
                pairs += 1;
                // A full run checks all pairs.
                if !full && pairs % 16 != 0 {
                    continue;
                }
                check(
                    &format!("{log_name} in {inner_name} in {outer_name}"),
                    &outer(&once),
                    &plain,
                    &mut failed,
                );
            }
        }
    }
    let shown = failed.iter().take(300).cloned().collect::<Vec<_>>().join("\n");
    assert!(failed.is_empty(), "{} of {pairs}:\n{shown}", failed.len());
}
