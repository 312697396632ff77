//! Tests of the page: embedded data, escaping, script.

use std::{
    collections::BTreeMap,
    error::Error,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use hugewise_jvm::threads::Role;
use hugewise_linux::units::Bytes;
use hugewise_record::{
    attribution::{
        HugePageAttempt, LogSource, LoggedPause, RecordingData, Room, Safepoint, Stall, Thread, Wait, actions,
    },
    recording::{Evidence, HeapMemory, Memory, Process},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

const BEGAN_NS: u64 = 7_000_000_000;
/// A name of a thread or program that would break the page if it were not escaped.
const HOSTILE: &str = "</script><script>alert(1)</script><!--\u{2028}\u{202e}\u{1b}[31m&\"'";

/// A JVM with a pause from 2 s to 3 s, and two threads that waited.
fn gathered(stalls: [Vec<Stall>; 2], name: &str) -> Result<RecordingData, Box<dyn Error>> {
    let size = |bytes: u64| json!(bytes);
    let header = json!({
        "schema": "hugewise.recording/2", "hugewise": "0.1.0", "began_ns": BEGAN_NS, "began_unix_ns": 0,
        "pid": 7, "started": true, "command": ["/opt/java", name], "events": [],
        "evidence": {"events": "all"},
        "machine": {
            "kernel": "6.18", "cpus": "0-1", "base_page_size_bytes": 4096,
            "meminfo": {
                "total_bytes": size(1 << 34), "free_bytes": size(0), "available_bytes": size(0), "hugetlb_bytes": size(0),
                "default_page_size_bytes": size(2 << 20),
                "default_pool": {
                    "page_size_bytes": 2 << 20, "node": null, "total": 0, "free": 0, "reserved": 0, "surplus": 0,
                    "overcommit": 0
                }
            },
            "pools": [],
            "thp": {
                "enabled": "madvise", "defrag": "madvise", "shmem_enabled": "never", "pmd_page_size_bytes": 2 << 20,
                "use_zero_page": true, "shrink_underused": true, "sizes": [],
                "khugepaged": {
                    "defrag": true, "scan_sleep_millisecs": 1, "alloc_sleep_millisecs": 1,
                    "pages_to_scan": 1, "max_ptes_none": 1, "max_ptes_swap": 1, "max_ptes_shared": 1
                }
            }
        }
    });
    let thread = |tid, role, name: &str| Thread {
        tid,
        pid: Some(7),
        name: Some(name.to_owned()),
        role,
        accounted: None,
    };
    let process = Process {
        ns: BEGAN_NS,
        pid: 7,
        name: name.to_owned(),
        command: vec![name.to_owned()],
        pid_inside: None,
    };
    let at = |ms: u64| BEGAN_NS + ms * 1_000_000;
    Ok(RecordingData {
        header: serde_json::from_value(header)?,
        ending: None,
        last_ns: at(4000),
        processes: BTreeMap::from([(7, process)]),
        threads: vec![thread(8, Role::Collector, "GC Thread#0"), thread(9, Role::Application, name)],
        stalls: stalls.to_vec(),
        open_stalls: 0,
        huge_pages: [(2100, true), (2100, false), (3500, true)]
            .map(|(ms, got)| HugePageAttempt { ns: at(ms), thread: 1, got })
            .to_vec(),
        steps: Vec::new(),
        pauses: vec![LoggedPause {
            pid: 7,
            gc_id: Some(0),
            kind: format!("Young {name}"),
            cause: Some(name.to_owned()),
            span: at(2000)..at(3000),
            cpu: None,
        }],
        safepoints: vec![Safepoint {
            pid: 7,
            operation: Some(name.to_owned()),
            span: at(1900)..at(3001),
            reached_ns: Some(at(2000)),
        }],
        logs: vec![LogSource { pid: 7, source: name.to_owned(), monotonic: true, unread: 0 }],
        memory: vec![Memory {
            ns: at(1000),
            pid: 7,
            resident_bytes: Bytes(3 << 20),
            thp_bytes: Bytes(2 << 20),
            hugetlb_bytes: Bytes(0),
            heap: Some(HeapMemory { resident_bytes: Bytes(2 << 20), huge_bytes: Bytes(1 << 20) }),
        }],
        machine: BTreeMap::new(),
        lost: BTreeMap::from([(Evidence::Events, (3, false))]),
        notes: vec![name.to_owned()],
        unread: (0, None),
        room: Room::default(),
    })
}

fn page_of(stalls: [Vec<Stall>; 2], name: &str) -> Result<String, Box<dyn Error>> {
    let explanation = Attribution::of(gathered(stalls, name)?);
    let actions = actions::changes(&explanation).iter().map(words::action).collect();
    let file = format!("{name}.rec");
    Ok(html(&AttributedRecording { file: Path::new(&file), explanation, actions })?)
}

/// The collector waits in the pause for a huge page, which is the verdict.
fn compaction() -> [Vec<Stall>; 2] {
    let span = BEGAN_NS + 2_100_000_000..BEGAN_NS + 2_900_000_000;
    [vec![Stall { thread: 0, wait: Wait::Compaction, span, for_huge: true }], Vec::new()]
}

fn embedded_in(page: &str) -> Result<&str, Box<dyn Error>> {
    let (_, behind) = page.split_once(r#"id="data">"#).ok_or("no data")?;
    Ok(behind.split_once("</script>").ok_or("no end")?.0)
}

fn data_of(page: &str) -> Result<Value, Box<dyn Error>> {
    Ok(serde_json::from_str(embedded_in(page)?)?)
}

/// Decodes numbers as the page's script does.
fn numbers(text: &Value) -> Vec<u64> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut all, mut number, mut shift) = (Vec::new(), 0, 0);
    for digit in text.as_str().into_iter().flat_map(str::chars).filter_map(|c| DIGITS.find(c)) {
        number |= (digit as u64 & 31) << shift;
        shift += 5;
        if digit < 32 {
            all.push(number);
            (number, shift) = (0, 0);
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_stall_is_in_the_page_with_its_times(
        first in -3_000_000_000_i64..3_000_000_000,
        waits in prop::collection::vec((0_u64..2_000_000_000, 0_u64..40_000_000_000, any::<bool>(), any::<bool>()), 0..40),
    ) {
        let mut at = BEGAN_NS.saturating_add_signed(first);
        let mut stalls = Vec::new();
        for (gap, length, reclaims, for_huge) in waits {
            let start = at + gap;
            at = start + length;
            let wait = if reclaims { Wait::Reclaim } else { Wait::Compaction };
            stalls.push(Stall { thread: 1, wait, span: start..at, for_huge });
        }
        let checked = |result: Result<Value, Box<dyn Error>>| result.map_err(|e| TestCaseError::fail(e.to_string()));
        let data = checked(page_of([Vec::new(), stalls.clone()], "main").and_then(|page| data_of(&page)))?;
        let begin_us = data["begin_us"].as_u64().ok_or_else(|| TestCaseError::fail("no begin"))?;
        let origin_ns = BEGAN_NS.min(stalls.first().map_or(u64::MAX, |stall| stall.span.start));
        prop_assert_eq!(begin_us, (BEGAN_NS - origin_ns) / 1000);
        let (mut at, mut found) = (0, Vec::new());
        for pair in numbers(&data["threads"][0]["stalls"]).chunks(2) {
            let start = at + pair[0];
            at = start + pair[1] / 4;
            found.push((start, at, pair[1] % 4));
        }
        let us = |ns: u64| (ns - origin_ns) / 1000;
        let expected: Vec<_> = stalls
            .iter()
            .map(|stall| {
                let reclaim = 2 * u64::from(stall.wait == Wait::Reclaim);
                (us(stall.span.start), us(stall.span.end), reclaim + u64::from(stall.for_huge))
            })
            .collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn pauses_safepoints_pages_and_memory_are_in_the_page() -> TestResult {
    let page = page_of(compaction(), "main")?;
    let data = data_of(&page)?;
    assert_eq!((&data["begin_us"], &data["end_us"]), (&json!(0), &json!(4_000_000)));
    let jvm = &data["jvms"][0];
    assert_eq!(numbers(&jvm["pauses"]), [2_000_000, 1_000_000, 0, 1, 1, 800_001, 800_001]);
    assert_eq!(numbers(&jvm["safepoints"]), [1_900_000, 1_101_000, 100_001, 1]);
    let names: Vec<&Value> =
        data["threads"].as_array().ok_or("no threads")?.iter().map(|t| &t["name"]).collect();
    assert_eq!(names, ["GC Thread#0", "main"]);
    assert_eq!(numbers(&data["threads"][1]["pages"]), [2 * 2_100_000 + 1, 0, 2 * 1_400_000 + 1]);
    assert_eq!(numbers(&data["memory"][0]["samples"]), [1_000_000, 3072, 2048, 0, 2049, 1025]);
    for said in [
        "transparent huge pages: threads waited",
        "3 of the kernel events were lost",
        "<code><span>hugewise</span> <span>plan</span>",
    ] {
        assert!(page.contains(said), "no {said}");
    }
    assert!(
        page.contains("href=\"#t=1.790000,3.110000\""),
        "the pause with its time to safepoint, and a tenth"
    );
    Ok(())
}

#[test]
fn hostile_text_is_escaped_in_the_page_and_in_the_data() -> TestResult {
    let page = page_of(compaction(), HOSTILE)?;
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2), "{page}");
    for forbidden in ["<!--", "\u{1b}", "\u{202e}"] {
        assert!(!page.contains(forbidden), "{forbidden:?}");
    }
    let embedded = embedded_in(&page)?;
    assert!(!embedded.contains('\u{2028}') && !embedded.contains('&'), "{embedded}");
    assert!(page.contains("&lt;script&gt;alert(1)"));
    let data = data_of(&page)?;
    let kept = HOSTILE.replace(['\u{1b}', '\u{202e}', '\u{2028}'], "\u{fffd}");
    assert_eq!(data["threads"][1]["name"], json!(kept));
    assert_eq!(data["jvms"][0]["kinds"][0], json!(format!("Young {kept}")));
    for names in ["causes", "operations"] {
        assert_eq!(data["jvms"][0][names][0], json!(kept));
    }
    Ok(())
}

#[test]
fn a_page_loads_no_other_file() -> TestResult {
    let page = page_of(compaction(), "main")?;
    for outside in ["src=", "url(", "@import", "<link", "<iframe", "http:", "https:", "fetch(", "import("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("default-src 'none'"));
    for (at, _) in page.match_indices("href=") {
        assert!(page[at..].starts_with("href=\"#t="), "{}", &page[at..at + 40]);
    }
    Ok(())
}

/// The script treats no text as HTML or code, and the page has its hash.
#[test]
fn the_page_runs_this_script_and_no_other() -> TestResult {
    for dangerous in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
    {
        assert!(!SCRIPT.contains(dangerous), "{dangerous}");
    }
    let mut sum = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    sum.stdin.take().ok_or("no pipe")?.write_all(SCRIPT.as_bytes())?;
    let said = String::from_utf8(sum.wait_with_output()?.stdout)?;
    let bits: String = said
        .chars()
        .map_while(|digit| digit.to_digit(16))
        .map(|digit| format!("{digit:04b}"))
        .chain(["00".to_owned()])
        .collect();
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut hash = String::new();
    for six in bits.as_bytes().chunks(6) {
        hash.push(char::from(DIGITS[usize::from_str_radix(std::str::from_utf8(six)?, 2)?]));
    }
    assert_eq!(SCRIPT_HASH, hash + "=", "SCRIPT_HASH must be this");
    assert!(page_of(compaction(), "main")?.contains(&format!("script-src 'sha256-{SCRIPT_HASH}'")));
    Ok(())
}
