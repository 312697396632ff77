//! Synthetic recordings for tests.

use hugewise_linux::{reading::Reading, root::Root};
use serde_json::{Value, json};

use super::*;
use crate::recording::{Evidence, FirstTouch, Header, Line, PageCost, Reader, SCHEMA};

pub(super) const MS: u64 = 1_000_000;
pub(super) const JVM: u32 = 7;
pub(super) const MAIN: u32 = 8;
pub(super) const GC0: u32 = 10;
pub(super) const GC1: u32 = 11;

/// A recording under construction; its times are in milliseconds.
pub(super) struct SyntheticRecording {
    pub evidence: Vec<Evidence>,
    /// Lowest cost of a base page.
    pub least_touch_ns: Option<u64>,
    pub lines: Vec<Value>,
}

impl SyntheticRecording {
    /// A JVM with two threads of a parallel collector.
    pub fn new(evidence: &[Evidence]) -> SyntheticRecording {
        let process = json!({"type": "process", "ns": 0, "pid": JVM, "name": "java", "command": ["java"], "pid_inside": null});
        let mut made = SyntheticRecording {
            evidence: evidence.to_vec(),
            least_touch_ns: Some(1000),
            lines: vec![process],
        };
        for (tid, name) in [(MAIN, "java"), (GC0, "GC Thread#0"), (GC1, "GC Thread#1")] {
            made.add(
                json!({"type": "thread", "ns": 0, "tid": tid, "pid": JVM, "name": name, "started_ticks": 1}),
            );
        }
        made.add(json!({"type": "jvm_log_source", "ns": 0, "pid": JVM, "source": "here", "monotonic": true}));
        made
    }

    /// Adds kernel events to the evidence.
    pub fn seen() -> SyntheticRecording {
        SyntheticRecording::new(&[Evidence::Events, Evidence::Delays])
    }

    pub fn add(&mut self, line: Value) -> &mut SyntheticRecording {
        self.lines.push(line);
        self
    }

    fn log(&mut self, line: String) -> &mut SyntheticRecording {
        self.add(json!({"type": "jvm_log", "ns": 0, "pid": JVM, "lines": [line]}))
    }

    /// A pause from `from` to `to`, with its CPU time.
    pub fn pause(&mut self, from: u64, to: u64, cpu: Option<(u64, u64)>) -> &mut SyntheticRecording {
        let end = to * MS;
        self.log(format!(
            "[{end}ns][info][gc] GC(0) Pause Young (Allocation Failure) 6M->2M(9M) {}.000ms",
            to - from
        ));
        if let Some((user, sys)) = cpu {
            self.log(format!(
                "[{end}ns][info][gc,cpu] GC(0) User={:.2}s Sys={:.2}s Real={:.2}s",
                user as f64 / 1e3,
                sys as f64 / 1e3,
                (to - from) as f64 / 1e3
            ));
        }
        self
    }

    /// A safepoint around a pause: requested at `asked`, reached at `reached`.
    pub fn safepoint(&mut self, asked: u64, reached: u64, end: u64) -> &mut SyntheticRecording {
        self.log(format!(
            "[{}ns][info][safepoint] Safepoint \"A\", Time since last: 1 ns, Reaching safepoint: {} ns, At \
             safepoint: {} ns, Total: {} ns",
            end * MS,
            (reached - asked) * MS,
            (end - reached) * MS,
            (end - asked) * MS
        ))
    }

    pub fn wait(&mut self, tid: u32, cause: &str, from: u64, to: u64) -> &mut SyntheticRecording {
        self.add(json!({"type": "stall", "cause": cause, "tid": tid, "begin_ns": from * MS, "end_ns": to * MS, "details": {}}))
    }

    pub fn huge_page(&mut self, tid: u32, at: u64, got: bool) -> &mut SyntheticRecording {
        self.add(json!({"type": "huge_page", "ns": at * MS, "tid": tid, "order": 9, "got": got}))
    }

    /// Compaction, followed by the failed attempt to allocate a huge page.
    pub fn compaction(&mut self, tid: u32, from: u64, to: u64) -> &mut SyntheticRecording {
        self.wait(tid, "compaction", from, to).huge_page(tid, to, false)
    }

    /// Faults, system time and accounted compaction since the previous sample.
    pub fn sample(
        &mut self,
        at: u64,
        tid: u32,
        faults: u64,
        sys: u64,
        compact: u64,
    ) -> &mut SyntheticRecording {
        let delay = |ns: u64| json!({"count": 1, "ns": ns});
        let ns = at * MS;
        self.add(json!({"type": "usage", "ns": ns, "threads": [
            {"tid": tid, "user_ns": 0, "sys_ns": sys * MS, "minor_faults": faults, "major_faults": 0}]}))
        .add(json!({"type": "delays", "ns": ns, "threads": [
            {"tid": tid, "compact": delay(compact * MS), "reclaim": delay(0), "thrashing": null, "swap_in": delay(0),
             "copy_on_write": null, "cpu": delay(0), "block_io": delay(0)}]}))
    }

    pub fn machine(&mut self, at: u64, compact_stall: u64) -> &mut SyntheticRecording {
        self.add(json!({"type": "machine", "ns": at * MS, "vmstat": {"compact_stall": compact_stall},
            "pressure_some_ns": null, "pools": [], "available_bytes": null}))
    }

    pub fn text(&self) -> String {
        let cost = PageCost { mean_ns: 1000, most_ns: 1000, least_ns: self.least_touch_ns };
        let header = Line::Header(Box::new(Header {
            schema: SCHEMA.to_owned(),
            hugewise: "0".to_owned(),
            began_ns: 0,
            began_unix_ns: 0,
            pid: JVM,
            started: true,
            command: vec!["java".to_owned(), "Main".to_owned()],
            machine: crate::recording::facts(&Root::at("/nowhere")),
            evidence: self.evidence.iter().map(|of| (*of, Reading::Known(String::new()))).collect(),
            events: vec![],
            first_touch: Reading::Known(FirstTouch {
                base: cost,
                huge: Some(PageCost { mean_ns: 1, most_ns: 500_000, least_ns: Some(500_000) }),
            }),
        }));
        let lines = self.lines.iter().map(Value::to_string);
        serde_json::to_string(&header).into_iter().chain(lines).map(|line| line + "\n").collect()
    }

    pub fn explained(&self) -> Attribution {
        explain(&self.text())
    }

    pub fn verdict(&self) -> Verdict {
        self.explained().decision.verdict
    }
}

pub(super) fn explain(text: &str) -> Attribution {
    let gathered = read_within(text, usize::MAX);
    assert_eq!((&gathered.unread, gathered.room.excess), (&(0, None), 0));
    Attribution::of(gathered)
}

/// Reads the text of a recording, and keeps at most `limit_bytes`.
pub(super) fn read_within(text: &str, limit_bytes: usize) -> RecordingData {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let _ = std::io::Write::write_all(&mut gzip, text.as_bytes());
    let bytes = gzip.finish().unwrap_or_default();
    let Ok(reader) = Reader::new(&bytes[..]) else { unreachable!("the header was written above") };
    RecordingData::read_within(reader, limit_bytes)
}
