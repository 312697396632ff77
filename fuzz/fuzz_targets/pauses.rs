//! Valid recordings with arbitrary values: no panic, and no pause with more attributed time than its
//! duration.

#![no_main]

use hugewise_fuzz::gzip;
use hugewise_linux::{reading::Reading, root::Root};
use hugewise_record::{
    attribution::{Attribution, RecordingData, actions},
    recording::{Evidence, FirstTouch, Header, Line, PageCost, Reader, SCHEMA, facts},
};
use libfuzzer_sys::fuzz_target;
use std::{fmt::Write as _, sync::OnceLock};

/// Lines before those of the input.
fn frame() -> &'static str {
    static FRAME: OnceLock<String> = OnceLock::new();
    FRAME.get_or_init(|| {
        let header = Line::Header(Box::new(Header {
            schema: SCHEMA.to_owned(),
            hugewise: String::new(),
            began_ns: 1,
            began_unix_ns: 2,
            pid: 7,
            started: true,
            command: vec!["java".to_owned()],
            machine: facts(&Root::at("/nowhere")),
            evidence: [Evidence::Events, Evidence::Delays].map(|of| (of, Reading::Known(String::new()))).into(),
            events: Vec::new(),
            first_touch: Reading::Known(FirstTouch {
                base: PageCost { least_ns: Some(1), mean_ns: 1, most_ns: 1000 },
                huge: None,
            }),
        }));
        let mut text = serde_json::to_string(&header).unwrap_or_default();
        text += "\n{\"type\":\"process\",\"ns\":0,\"pid\":7,\"name\":\"java\",\"command\":[\"java\"],\"pid_inside\":null}\n";
        text += "{\"type\":\"jvm_log_source\",\"ns\":0,\"pid\":7,\"source\":\"\",\"monotonic\":true}\n";
        for (tid, name) in [(8, "java"), (10, "GC Thread#0"), (11, "ZWorker#0")] {
            let _ = writeln!(
                text,
                "{{\"type\":\"thread\",\"ns\":0,\"tid\":{tid},\"pid\":7,\"name\":\"{name}\",\"started_ticks\":1}}"
            );
        }
        text
    })
}

/// Makes a line of seven bytes: kind, thread, and two times with small or large distances.
fn line(text: &mut String, bytes: &[u8; 7]) {
    let [what, who, a, b, c, d, far] = *bytes;
    let tid = 8 + u32::from(who % 5);
    let shift = if far > 250 { 55 } else { u32::from(far % 24) };
    let (from, len) =
        (u64::from(u16::from_le_bytes([a, b])) << shift, u64::from(u16::from_le_bytes([c, d])) << 8);
    let to = from.saturating_add(len);
    let delay = |ns: u64| format!("{{\"count\":1,\"ns\":{ns}}}");
    let _ = match what % 7 {
        0 => writeln!(
            text,
            "{{\"type\":\"stall\",\"cause\":\"compaction\",\"tid\":{tid},\"begin_ns\":{from},\"end_ns\":{to},\"details\":{{}}}}"
        ),
        1 => writeln!(
            text,
            "{{\"type\":\"stall\",\"cause\":\"throttled\",\"tid\":{tid},\"begin_ns\":{to},\"end_ns\":{from},\"details\":{{}}}}"
        ),
        2 => writeln!(
            text,
            "{{\"type\":\"huge_page\",\"ns\":{from},\"tid\":{tid},\"order\":9,\"got\":{}}}",
            far % 2 == 0
        ),
        3 => writeln!(
            text,
            "{{\"type\":\"usage\",\"ns\":{from},\"threads\":[{{\"tid\":{tid},\"user_ns\":0,\"sys_ns\":{to},\"minor_faults\":{from},\"major_faults\":0}}]}}"
        ),
        4 => writeln!(
            text,
            "{{\"type\":\"delays\",\"ns\":{from},\"threads\":[{{\"tid\":{tid},\"compact\":{},\"reclaim\":{},\"thrashing\":null,\"swap_in\":{},\"copy_on_write\":null,\"cpu\":{},\"block_io\":{}}}]}}",
            delay(to),
            delay(from),
            delay(0),
            delay(0),
            delay(0)
        ),
        5 => writeln!(
            text,
            "{{\"type\":\"jvm_log\",\"ns\":{to},\"pid\":7,\"lines\":[\"[{to}ns][info][gc] GC({who}) Pause Young 6M->2M(9M) {}.{:03}ms\",\"[{to}ns][info][gc,cpu] GC({who}) User=0.0{a}s Sys=0.{b}s Real=0.10s\"]}}",
            len / 1000,
            len % 1000
        ),
        _ => writeln!(
            text,
            "{{\"type\":\"jvm_log\",\"ns\":{to},\"pid\":7,\"lines\":[\"[{to}ns][info][safepoint] Safepoint \\\"A\\\", Time since last: 1 ns, Reaching safepoint: {a} ns, At safepoint: {len} ns, Total: {len} ns\"]}}"
        ),
    };
}

fuzz_target!(|bytes: &[u8]| {
    let mut text = frame().to_owned();
    bytes.as_chunks::<7>().0.iter().take(24).for_each(|bytes| line(&mut text, bytes));
    let whole = gzip(text.as_bytes());
    let gathered = RecordingData::read(Reader::new(&whole[..]).expect("its header is whole"));
    assert_eq!(gathered.unread, (0, None));
    let explanation = Attribution::of(gathered);
    for pause in &explanation.pauses {
        let ns = pause.stop.span.end - pause.stop.span.start;
        assert!(pause.stalled_ns.is_some_and(|stalled| stalled <= ns));
        assert!(pause.threads.iter().all(|part| part.compaction.ns + part.reclaim.ns <= ns));
    }
    let _ = actions::changes(&explanation);
});
