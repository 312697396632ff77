//! Wrappings of logs, for tests of all readers of logs.

use std::fmt::Write;

use flate2::{Compression, write::GzEncoder};
use serde_json::json;

/// Puts something around the lines of a log.
pub type Dress = (&'static str, fn(&[u8]) -> Vec<u8>);

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

/// What runtimes, shippers, terminals, editors and trackers put around the lines of a log.
#[rustfmt::skip]
pub const DRESSES: &[Dress] = &[
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
    ("logcat", |log| each_line(log, |_, line| format!("09-14 06:02:15.192  4711  4712 W java    : {line}"))),
    ("markdown fence", |log| [b"It does not start:\n```text\n", log, b"```\n"].concat()),
    ("windows event", |log| each_line(log, |_, line| format!("9/14/2026 6:02:15 AM\tWarning\t{line}\r"))),
    ("github actions", |log| each_line(log, |n, line| format!("build\tRun tests\t{} {line}", time(n)))),
    ("terraform", |log| each_line(log, |_, line| format!("module.db.null_resource.x (remote-exec): {line}"))),
    ("gzip", |log| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        let _ = std::io::Write::write_all(&mut gzip, log);
        gzip.finish().unwrap_or_default()
    }),
];

/// What people and tools put around lines that they quote, in no other wrapping.
#[rustfmt::skip]
pub const QUOTES: &[Dress] = &[
    ("markdown table", |log| each_line(log, |n, line| format!("| {n} | {line} |"))),
    ("markdown code", |log| each_line(log, |_, line| format!("- `{line}`"))),
    ("ansible", |log| each_line(log, |n, line| format!("        {},", serde_json::to_string(&format!("{n} {line}")).unwrap_or_default()))),
    ("python repr", |log| each_line(log, |_, line| format!("b'{}\\n'", line.replace('\\', "\\\\").replace('\'', "\\'")))),
];
