//! Recordings, whole or damaged: no panic, and the lines after a bad line are read.

#![no_main]

use hugewise_fuzz::gzip;
use hugewise_linux::{reading::Reading, root::Root};
use hugewise_record::recording::{FirstTouch, Header, Line, PageCost, Reader, SCHEMA, Summary, facts};
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

/// The first line, and another one.
fn frame() -> &'static (String, String) {
    static FRAME: OnceLock<(String, String)> = OnceLock::new();
    FRAME.get_or_init(|| {
        let header = Line::Header(Box::new(Header {
            schema: SCHEMA.to_owned(),
            hugewise: String::new(),
            began_ns: 1,
            began_unix_ns: 2,
            pid: 7,
            started: true,
            command: Vec::new(),
            machine: facts(&Root::at("/nowhere")),
            evidence: Default::default(),
            events: Vec::new(),
            first_touch: Reading::Known(FirstTouch {
                base: PageCost { least_ns: Some(1), mean_ns: 1, most_ns: u64::MAX },
                huge: None,
            }),
        }));
        let note = r#"{"type":"note","ns":3,"text":"behind"}"#.to_owned();
        (serde_json::to_string(&header).unwrap_or_default(), note)
    })
}

fn read(bytes: &[u8]) -> Option<Summary> {
    let mut summary = Summary::default();
    for line in Reader::new(bytes).ok()?.flatten() {
        summary.add(&line);
    }
    Some(summary)
}

fuzz_target!(|bytes: &[u8]| {
    let _ = read(bytes);
    let (header, note) = frame();
    let whole = gzip(&[header.as_bytes(), b"\n", bytes, b"\n", note.as_bytes(), b"\n"].concat());
    let reported = read(&whole).expect("its header is whole");
    assert!(reported.notes.iter().any(|note| note == "behind"));
});
