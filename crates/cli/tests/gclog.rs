//! The built `hugewise gclog`: on files, rotations, pipes and compressed logs, complete and damaged.

use std::{
    error::Error,
    fs,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use hugewise_linux::testing::trials::skip_part;
use serde_json::Value;

type TestResult = Result<(), Box<dyn Error>>;

const QUIET: &str = "\
[0.002s][info][gc] Using G1
[0.204s][info][gc          ] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 9M->4M(96M) 1.500ms
[0.204s][info][gc,cpu      ] GC(0) User=0.01s Sys=0.02s Real=0.00s
[0.204s][info][safepoint   ] Safepoint \"G1CollectForAllocation\", Time since last: 1 ns, Reaching safepoint: 20000000 ns, Cleanup: 3 ns, At safepoint: 4 ns, Total: 21500000 ns
[0.304s][info][gc          ] GC(1) Pause Full (System.gc()) 9M->4M(96M) 2.500ms
[0.304s][info][gc,cpu      ] GC(1) User=0.03s Sys=0.00s Real=0.01s
";
const SUSPECT: &str = "\
[7.000s][info][gc          ] GC(2) Pause Young (Normal) (G1 Evacuation Pause) 9M->4M(96M) 2470.000ms
[7.000s][info][gc,cpu      ] GC(2) User=0.08s Sys=1.91s Real=2.47s
";

fn gclog(args: &[&str]) -> std::io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_hugewise")).arg("gclog").args(args).stdin(Stdio::null()).output()
}

fn piped(args: &[&str], log: &[u8]) -> Result<Output, Box<dyn Error>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hugewise"));
    command.arg("gclog").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().ok_or("a pipe")?.write_all(log)?;
    Ok(child.wait_with_output()?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}

#[test]
fn pauses_of_a_pipe_are_reported_with_the_slow_safepoint() -> TestResult {
    let ran = piped(&["-"], QUIET.as_bytes())?;
    let said = text(&ran.stdout);
    assert_eq!(ran.status.code(), Some(0), "{said}");
    for part in [
        "2 pauses, 0.004 s in total · user 0.040 s, sys 0.020 s, real 0.010 s",
        "Young (Normal)      1    0.002    1.50    1.50    1.50   0.010  0.020   0.000",
        "20.0 ms for G1CollectForAllocation at 0.204 s, line 4",
    ] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    assert!(!said.contains("SYS > USER") && !said.contains("UNPARSED"), "{said}");
    Ok(())
}

#[test]
fn a_pause_of_the_kernel_is_a_negative_verdict_that_blames_no_process() -> TestResult {
    let ran = piped(&["-"], [QUIET, SUSPECT].concat().as_bytes())?;
    let said = text(&ran.stdout);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    for part in [
        "1 pause has more system time than user time",
        "at 4.530 s, line 7",
        "first touch",
        "the cause is unknown",
        "$ hugewise check",
    ] {
        assert!(said.split_whitespace().collect::<Vec<_>>().join(" ").contains(part), "no {part}: {said}");
    }
    Ok(())
}

#[test]
fn json_holds_every_pause_and_the_sums_of_them() -> TestResult {
    let damaged = "[8.0s][info][gc] GC(3) Pause Young (Normal) (G1 Evacuation Pause) 9M->4\n";
    let ran = piped(&["--json", "-"], [QUIET, SUSPECT, damaged].concat().as_bytes())?;
    assert_eq!(ran.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&ran.stdout)?;
    assert_eq!(
        (&json["schema"], &json["clock"], &json["jvms"]),
        (&"hugewise.gclog/2".into(), &"uptime".into(), &1.into())
    );
    let pauses = json["pauses"].as_array().ok_or("no pauses")?;
    assert_eq!(pauses.len(), 3);
    let last = &pauses[2];
    assert_eq!(
        (&last["gc_id"], &last["kind"], &last["cause"]),
        (&2.into(), &"Young (Normal)".into(), &"G1 Evacuation Pause".into())
    );
    assert_eq!((&last["start_seconds"], &last["duration_seconds"]), (&4.53.into(), &2.47.into()));
    for figure in ["duration_seconds", "user_seconds", "sys_seconds", "real_seconds"] {
        let sum: f64 = pauses.iter().filter_map(|pause| pause[figure].as_f64()).sum();
        let total = json["totals"][figure].as_f64().ok_or("no total")?;
        assert!((sum - total).abs() < 1e-9, "{figure}: {sum} and {total}");
    }
    assert_eq!((&json["totals"]["pauses"], &json["sys_above_user"]["pauses"]), (&3.into(), &1.into()));
    assert_eq!((&json["unread_lines"], &json["unread"][0]["line"]), (&1.into(), &9.into()));
    let published = include_str!("../../../docs/schema/gclog.json");
    let schema: Value = serde_json::from_str(published)?;
    for name in schema["required"].as_array().ok_or("no required")? {
        assert!(json.get(name.as_str().unwrap_or_default()).is_some(), "{name}");
    }
    let properties = schema["properties"].as_object().ok_or("no properties")?;
    for name in json.as_object().ok_or("no object")?.keys() {
        assert!(properties.contains_key(name), "{name} is not in the schema");
    }
    Ok(())
}

#[test]
fn a_log_without_pauses_is_a_log() -> TestResult {
    for args in [&["-"][..], &["--json", "-"], &["--openmetrics", "-"]] {
        let ran = piped(args, b"[0.002s][info][gc] Using G1\n")?;
        assert_eq!(ran.status.code(), Some(0), "{args:?}: {}", text(&ran.stderr));
    }
    let ran = piped(&["--json", "-"], b"[0.002s][info][gc] Using G1\n")?;
    let json: Value = serde_json::from_slice(&ran.stdout)?;
    assert_eq!((&json["pauses"], &json["totals"]["pauses"]), (&Value::Array(Vec::new()), &0.into()));
    Ok(())
}

/// Checks the parts of the OpenMetrics grammar that are used.
#[test]
fn metrics_are_well_formed_whatever_the_log_calls_its_pauses() -> TestResult {
    let odd = "GC(9) Pause \"\\ odd {} 1.000ms\n";
    let ran = piped(&["--openmetrics", "-"], [QUIET, SUSPECT, odd].concat().as_bytes())?;
    let said = text(&ran.stdout);
    assert!(said.ends_with("# EOF\n"), "{said}");
    let sample = regex::Regex::new(
        r#"^(hugewise_[a-z_]+)(?:\{(?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+\})? (?:[0-9]+(?:\.[0-9]+)?)$"#,
    )?;
    let mut family = String::new();
    for line in said.lines().filter(|line| *line != "# EOF") {
        if let Some(named) = line.strip_prefix("# TYPE ") {
            family = named.split(' ').next().unwrap_or_default().to_owned();
        } else if let Some(unit) = line.strip_prefix("# UNIT ") {
            assert!(family.ends_with(unit.split(' ').nth(1).unwrap_or("?")), "{line}");
        } else if !line.starts_with("# HELP ") {
            let found = sample.captures(line).ok_or_else(|| format!("no sample: {line}"))?;
            let suffix =
                found[1].strip_prefix(family.as_str()).ok_or_else(|| format!("not of {family}: {line}"))?;
            assert!(["", "_total", "_count", "_sum"].contains(&suffix), "{line}");
        }
    }
    assert!(
        said.contains("hugewise_gc_pause_cpu_seconds_total{kind=\"Young (Normal)\",mode=\"system\"} 1.93\n"),
        "{said}"
    );
    assert!(said.contains("hugewise_gc_sys_above_user_pauses_total 1\n"), "{said}");
    Ok(())
}

#[test]
fn a_rotation_is_one_log_whatever_the_order_of_its_files() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (older, newer) = (path(dir.path(), "gc.log.0"), path(dir.path(), "gc.log"));
    // The CPU time of the last pause is in the next file.
    let cut = SUSPECT.find('\n').ok_or("a line")? + 1;
    fs::write(&older, [QUIET, &SUSPECT[..cut]].concat())?;
    fs::write(&newer, [&SUSPECT[cut..], "[0.002s][info][gc] Using G1\n", QUIET].concat())?;
    for files in [[&*older, &*newer], [&*newer, &*older]] {
        let ran = gclog(&[&["--json"], &files[..]].concat())?;
        let json: Value = serde_json::from_slice(&ran.stdout)?;
        assert_eq!(json["files"], serde_json::json!([older, newer]));
        assert_eq!((&json["pauses"][2]["sys_seconds"], &json["jvms"]), (&1.91.into(), &2.into()));
        assert_eq!(json["pauses"][4]["jvm"], 1);
    }
    let alone = text(&gclog(&[&newer])?.stdout);
    assert!(alone.contains("not read:") && alone.contains("gc.log.0"), "{alone}");
    Ok(())
}

#[test]
fn packed_logs_are_read_as_far_as_they_go() -> TestResult {
    let dir = tempfile::tempdir()?;
    let log = path(dir.path(), "gc.log");
    fs::write(&log, QUIET.repeat(500))?;
    if !Command::new("gzip").arg(&log).status().is_ok_and(|status| status.success()) {
        skip_part("gclog: packed logs", "gzip is not installed");
        return Ok(());
    }
    let packed = log + ".gz";
    let count = |ran: &Output| -> Result<u64, Box<dyn Error>> {
        let json: Value = serde_json::from_slice(&ran.stdout)?;
        Ok(json["totals"]["pauses"].as_u64().ok_or("no total")?)
    };
    assert_eq!(count(&gclog(&["--json", &packed])?)?, 1000);
    let bytes = fs::read(&packed)?;
    assert_eq!(count(&piped(&["--json", "-"], &bytes)?)?, 1000);
    fs::write(&packed, &bytes[..bytes.len() - 20])?;
    let ran = gclog(&[&packed])?;
    assert_eq!(ran.status.code(), Some(0));
    assert!(text(&ran.stdout).contains("truncated or damaged"), "{}", text(&ran.stdout));
    Ok(())
}

/// Output may reach a terminal: it must not contain escape sequences from a log.
#[test]
fn escape_sequences_of_a_log_are_replaced() -> TestResult {
    let log = "GC(1) Pause \x1b]0;mine\x07Young 1.000ms\nGC(2) Pause \x1b[2J 9M->\nGC(3) User=\x1b[2J\n";
    for args in [&["-"][..], &["--openmetrics", "-"]] {
        let ran = piped(args, log.as_bytes())?;
        assert!(!text(&ran.stdout).contains('\x1b'), "{args:?}: {}", text(&ran.stdout));
    }
    Ok(())
}

#[test]
fn the_page_needs_nothing_else_and_escapes_what_a_log_says() -> TestResult {
    let dir = tempfile::tempdir()?;
    let page = path(dir.path(), "page.html");
    let log = [QUIET, SUSPECT, "GC(4) Pause <script>alert(1) 1.000ms\n"].concat();
    assert_eq!(piped(&["--html", &page, "-"], log.as_bytes())?.status.code(), Some(1));
    let page = fs::read_to_string(page)?;
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"), "not escaped");
    assert!(!page.contains("http://") || !page.contains("src="), "something is fetched");
    assert_eq!(page.matches("<svg").count(), 4);
    Ok(())
}

#[test]
fn what_cannot_be_read_is_refused_with_a_next_step() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (other, zstd) = (path(dir.path(), "notes.txt"), path(dir.path(), "gc.log.zst"));
    fs::write(&other, "Dear diary,\nGC is a word.\n")?;
    fs::write(&zstd, b"\x28\xb5\x2f\xfd1234")?;
    for (args, said) in [
        (vec![], "FILE"),
        (vec!["/nowhere/gc.log"], "No such file"),
        (vec!["/"], "folder"),
        (vec![&*other], "-Xlog:gc*"),
        (vec!["--json", &*other], "-Xlog:gc*"),
        (vec![&*zstd], "zstdcat"),
        (vec!["--json", "--openmetrics", &*other], "cannot be used with"),
        (vec!["--html", "/nowhere/page.html", &*other], "cannot write"),
    ] {
        let ran = gclog(&args)?;
        assert_eq!(ran.status.code(), Some(2), "{args:?}");
        assert!(text(&ran.stderr).contains(said), "{args:?}: {}", text(&ran.stderr));
        assert_eq!(text(&ran.stdout), "", "{args:?}");
    }
    Ok(())
}

/// All forms of lines, an unlimited number of kinds, and lines of unlimited length.
#[test]
fn memory_does_not_grow_with_the_log() -> TestResult {
    const MIB: usize = 1 << 20;
    for args in [&["-"][..], &["--json", "-"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hugewise"));
        command.arg("gclog").args(args).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn()?;
        let mut pipe = child.stdin.take().ok_or("a pipe")?;
        let (mut written, mut n) = (0, 0u64);
        while written < 40 * MIB {
            let mut block = QUIET.repeat(100);
            for _ in 0..100 {
                n += 1;
                block += &format!(
                    "[{n}.0s] GC({n}) Pause Kind {n} {n}.123ms\n[{n}.0s] GC({n}) User=0.0x\n{n}.0: [GC (cause {n} [\n"
                );
            }
            block += &"[".repeat(70_000);
            block.push('\n');
            pipe.write_all(block.as_bytes())?;
            written += block.len();
        }
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
        let peak_kib: usize = peak.trim().trim_end_matches(" kB").parse()?;
        drop(pipe);
        child.wait()?;
        assert!(peak_kib < 32 * 1024, "{args:?}: {peak_kib} KiB");
    }
    Ok(())
}

fn field(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/field").join(name).display().to_string()
}

/// Exit status, and the output as one line.
fn read(names: &[&str]) -> Result<(Option<i32>, String), Box<dyn Error>> {
    let files: Vec<String> = names.iter().map(|name| field(name)).collect();
    let ran = gclog(&files.iter().map(String::as_str).collect::<Vec<_>>())?;
    Ok((ran.status.code(), text(&ran.stdout).split_whitespace().collect::<Vec<_>>().join(" ")))
}

#[test]
fn a_log_of_docker_and_of_powershell_has_the_pauses_of_the_plain_log() -> TestResult {
    let (status, plain) = read(&["oracle-plain.log"])?;
    assert_eq!(status, Some(1));
    let table = plain
        .split_once("pause count")
        .ok_or("no table")?
        .1
        .split_once("SYS > USER")
        .ok_or("no list")?
        .0
        .to_owned();
    for (name, taken) in
        [("docker-json-file.log", "JSON"), ("kubectl-powershell-utf16.log", "UTF-16, prefixes")]
    {
        let (status, said) = read(&[name])?;
        assert_eq!(status, Some(1), "{said}");
        for part in [
            "6 pauses, 0.908 s in total",
            "2 pauses have more system",
            table.split(" NOTE ").next().unwrap_or_default().trim(),
        ] {
            assert!(said.contains(part), "{name} lacks {part}: {said}");
        }
        assert!(said.contains(&format!("Taken off the lines before they were read: {taken}")), "{said}");
        assert!(!said.contains("UNPARSED"), "{said}");
    }
    Ok(())
}

#[test]
fn the_first_line_behind_a_hole_counts() -> TestResult {
    let (status, said) = read(&["copytruncate-gc.log"])?;
    assert_eq!(status, Some(1), "{said}");
    for part in ["4 pauses", "1 pause has more system time", "941 0.080 1.61"] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    Ok(())
}

#[test]
fn a_log_of_cms_with_heaps_names_reclaim_of_nodes() -> TestResult {
    let (status, said) = read(&["jdk8-cms-heapatgc.log"])?;
    assert_eq!(status, Some(1), "{said}");
    for part in ["3 pauses, 11.6 s in total", "vm.zone_reclaim_mode", "NUMA balancing", "total 2 11.5"] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    Ok(())
}

#[test]
fn pauses_that_wait_are_a_negative_verdict_that_excludes_compaction() -> TestResult {
    let (status, said) = read(&["gc.log.0", "gc.log.1.current"])?;
    assert_eq!(status, Some(1), "{said}");
    for part in [
        "4 pauses, 22.2 s in total",
        "2 pauses have far more wall-clock time than CPU time",
        "15350 0.250 0.050",
        "Neither compaction nor first touch nor zeroing",
        "sudo hugewise record",
        "write of the log",
    ] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    assert!(!said.contains("SYS > USER") && !said.contains("JVMs"), "{said}");
    Ok(())
}

#[test]
fn stalls_of_zgc_are_pauses_of_their_threads() -> TestResult {
    let (status, said) = read(&["zgc-stalls-swarm.log"])?;
    assert_eq!(status, Some(1), "{said}");
    for part in [
        "9 allocation stalls of threads, 2.21 s in total, at most 403 ms",
        "Allocation Stall 9 2.21",
        "query-0413",
        "gc+phases",
    ] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    let ran = gclog(&["--json", &field("zgc-stalls-swarm.log")])?;
    let json: Value = serde_json::from_slice(&ran.stdout)?;
    let stalls = &json["stalls"][0];
    assert_eq!(
        (&stalls["count"], &stalls["total_seconds"], &stalls["max_seconds"]),
        (&9.into(), &2.211_318.into(), &0.402_711.into())
    );
    Ok(())
}
