//! A log in any wrapping has the pauses of the plain log: every wrapping, and every pair of them.

use std::fmt::Write;

use flate2::{Compression, write::GzEncoder};
use hugewise_texts::decoder;
use serde_json::json;

use super::{Event, Reader};

/// Puts something around the lines of a log.
type Dress = (&'static str, fn(&[u8]) -> Vec<u8>);

fn each_line(log: &[u8], dressed: impl Fn(usize, &str) -> String) -> Vec<u8> {
    let text = String::from_utf8_lossy(log);
    let mut out = String::new();
    for (n, line) in text.lines().enumerate() {
        out += &dressed(n, line);
        out.push('\n');
    }
    out.into_bytes()
}

/// `2026-09-14T06:02:15.192417311Z`, later with each line.
fn time(n: usize) -> String {
    format!("2026-09-14T06:{:02}:{:02}.{:09}Z", 2 + n / 600, n / 10 % 60, 192_417_311 + n)
}

fn utf16(text: &[u8], mark: bool, order: fn(u16) -> [u8; 2]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text).replace('\n', "\r\n");
    let units = mark.then_some(0xfeff).into_iter().chain(text.encode_utf16());
    units.flat_map(order).collect()
}

#[rustfmt::skip]
const DRESSES: &[Dress] = &[
    ("docker json-file", |log| each_line(log, |n, line| json!({"log": format!("{line}\n"), "stream": "stdout", "time": time(n)}).to_string())),
    ("json under another key", |log| each_line(log, |n, line| json!({"@timestamp": time(n), "kubernetes": {"pod": "web-0"}, "zeile": line}).to_string())),
    ("json with nested object", |log| each_line(log, |n, line| json!({"ts": n, "event": {"original": line, "kind": "event"}}).to_string())),
    ("json bytes", |log| each_line(log, |n, line| json!({"__CURSOR": format!("s={n}"), "MESSAGE": line.as_bytes(), "PRIORITY": "6"}).to_string())),
    ("json pretty", |log| each_line(log, |n, line| serde_json::to_string_pretty(&json!({"__REALTIME_TIMESTAMP": n.to_string(), "MESSAGE": line})).unwrap_or_default())),
    ("json pretty bytes", |log| each_line(log, |n, line| serde_json::to_string_pretty(&json!({"n": n.to_string(), "MESSAGE": line.as_bytes()})).unwrap_or_default())),
    ("json sse", |log| each_line(log, |n, line| format!("data: {}", json!({"n": n, "MESSAGE": line})))),
    ("logfmt", |log| each_line(log, |n, line| format!("time={} level=info msg={} pod=web-0", time(n), serde_json::to_string(line).unwrap_or_default()))),
    ("csv", |log| each_line(log, |n, line| format!("{},web-0,\"{}\",info", time(n), line.replace('"', "\"\"")))),
    ("csv, all quoted", |log| each_line(log, |n, line| format!("\"{}\";\"{}\"", time(n), line.replace('"', "\"\"")))),
    ("cri", |log| each_line(log, |n, line| format!("{} stdout F {line}", time(n)))),
    ("cri in parts", |log| each_line(log, |n, line| {
        let mut out = String::new();
        let middle = line.len() / 2;
        if line.is_char_boundary(middle) && middle > 0 {
            let _ = write!(out, "{0} stdout P {1}\n{0} stdout F {2}", time(n), &line[..middle], &line[middle..]);
        } else {
            let _ = write!(out, "{} stdout F {line}", time(n));
        }
        out
    })),
    ("docker timestamps", |log| each_line(log, |n, line| format!("{} {line}", time(n)))),
    ("compose", |log| each_line(log, |_, line| format!("api-1  | {line}"))),
    ("compose with colours", |log| each_line(log, |_, line| format!("\x1b[36mapi-1  |\x1b[0m {line}"))),
    ("swarm", |log| each_line(log, |_, line| format!("shop_api.2.k3v9q1zz7f0a@node7    | {line}"))),
    ("kubectl --prefix", |log| each_line(log, |_, line| format!("[pod/web-0/app] {line}"))),
    ("stern", |log| each_line(log, |_, line| format!("web-0 app {line}"))),
    ("syslog", |log| each_line(log, |n, line| format!("Sep 14 06:02:{:02} node7 java[4711]: {line}", n % 60))),
    ("rfc 5424", |log| each_line(log, |n, line| format!("<14>1 {} node7 java 4711 - - {line}", time(n)))),
    ("rsyslog escapes", |log| each_line(log, |_, line| format!("Sep 14 06:02:15 node7 java[4711]: #033[32m{line}#033[0m"))),
    ("journal short-monotonic", |log| each_line(log, |n, line| format!("[ 4123.{n:06}] node7 java[4711]: {line}"))),
    ("journal short-unix", |log| each_line(log, |n, line| format!("1789366935.{n:06} node7 java[4711]: {line}"))),
    ("journal short-iso", |log| each_line(log, |n, line| format!("2026-09-14T06:02:{:02}+0000 node7 java[4711]: {line}", n % 60))),
    ("journal verbose", |log| each_line(log, |n, line| format!("Mon 2026-09-14 06:02:15.192417 UTC [s=1;i={n:x}]\n    PRIORITY=6\n    MESSAGE={line}\n    _PID=4711"))),
    ("journal export", |log| each_line(log, |n, line| format!("__CURSOR=s=1;i={n:x}\nMESSAGE={line}\n_PID=4711\n"))),
    ("heroku", |log| each_line(log, |n, line| format!("{} app[web.1]: {line}", time(n)))),
    ("cloud foundry", |log| each_line(log, |n, line| format!("{} [APP/PROC/WEB/0] OUT {line}", time(n)))),
    ("daemontools", |log| each_line(log, |n, line| format!("@400000005ba3ae10{n:08x} {line}"))),
    ("service wrapper", |log| each_line(log, |_, line| format!("INFO   | jvm 1    | 2026/09/14 06:02:15 | {line}"))),
    ("grep -n", |log| each_line(log, |n, line| format!("gc.log:{}:{line}", n + 1))),
    ("mail", |log| each_line(log, |_, line| format!("> {line}"))),
    ("diff", |log| each_line(log, |_, line| format!("+{line}"))),
    ("html", |log| each_line(log, |_, line| format!("{}<br>", line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")))),
    ("colours", |log| each_line(log, |_, line| format!("\x1b[0;32m{line}\x1b[0m\x1b[K"))),
    ("colours within", |log| each_line(log, |_, line| line.replace(' ', " \x1b[1m\x1b[22m"))),
    ("cat -v", |log| each_line(log, |_, line| format!("^[[32m{line}^[[0m"))),
    ("window title", |log| each_line(log, |_, line| format!("\x1b]0;log\x07{line}"))),
    ("crlf", |log| each_line(log, |_, line| format!("{line}\r"))),
    ("cr only", |log| String::from_utf8_lossy(log).replace('\n', "\r").into_bytes()),
    ("utf-8 mark", |log| [b"\xef\xbb\xbf", log].concat()),
    ("utf-16 le with mark", |log| utf16(log, true, u16::to_le_bytes)),
    ("utf-16 be with mark", |log| utf16(log, true, u16::to_be_bytes)),
    ("utf-16 le", |log| utf16(log, false, u16::to_le_bytes)),
    ("nul run", |log| [&[0; 70_000], log].concat()),
    ("nuls within", |log| each_line(log, |n, line| if n % 3 == 1 { format!("\0\0\0{line}") } else { line.to_owned() })),
    ("gzip", |log| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        let _ = std::io::Write::write_all(&mut gzip, log);
        gzip.finish().unwrap_or_default()
    }),
];

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
        for (name, dress) in DRESSES {
            check(&format!("{log_name} in {name}"), &dress(log), &plain, &mut failed);
        }
    }
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), LOGS.len() * DRESSES.len(), failed.join("\n"));
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
