//! `split`: huge pages of running programs are split, zero-filled memory is counted and given back, and each
//! refusal has its reason.

use std::{error::Error, fs, process::Command, thread, time::Duration, time::Instant};

use serde_json::Value;

use crate::{
    TestResult, Trial,
    collapse::{
        HUGE, MIB, Part, Program, huge, json, part, refused_without_rights, start_target, total_huge,
    },
    needs::Need::{Compiler, Free, Root, Thp},
    settings::MAX_WAIT_TIME,
    start::{Running, hugewise, run, says},
    trial,
};

pub const TARGET: &str = include_str!("split_target.c");
/// Size of the memory of which a quarter is zero-filled, in MiB.
const DATA_MIB: u64 = 64;

pub fn trials() -> Vec<Trial> {
    let c = [Root, Thp, Compiler, Free(512)];
    vec![
        trial("split: zero-filled memory is counted and given back", &c, zeros),
        trial("split: a dry run changes nothing", &c, dry_run),
        trial("split: the rate is kept, and Ctrl-C stops", &c, rate_and_interrupt),
        trial("split: without the capabilities", &c, without_rights),
    ]
}

fn target() -> Result<(Program, Vec<Part>), Box<dyn Error>> {
    start_target(TARGET, DATA_MIB, |_| ())
}

fn split_process(pid: &str, options: &[&str], status: i32) -> Result<Value, Box<dyn Error>> {
    json(&run(&[&["split", pid, "--json"], options].concat())?.ended_with(status)?)
}

/// Resident bytes of the process, from smaps_rollup.
fn resident(pid: &str) -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).ok_or("no Rss")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

fn zeros() -> TestResult {
    let (program, parts) = target()?;
    let pid = program.pid();
    let made = DATA_MIB * MIB / 4;
    let before = resident(&pid)?;
    let dry = split_process(&pid, &["--dry-run"], 0)?;
    assert_eq!(dry["estimate"]["zero_filled_bytes"].as_u64(), Some(made), "{dry:#}");
    assert_eq!(dry["pages"].as_u64(), Some(DATA_MIB / 2 + 4 + 2 + 2 + 4), "{dry:#}");

    let reported = split_process(&pid, &[], 1)?;
    assert_eq!(reported["given_back_bytes"].as_u64(), Some(made), "{reported:#}");
    assert_eq!(reported["outcome"], "finished", "{reported:#}");
    let on_huge = |name: &str| huge(&pid, part(&parts, name)?);
    assert_eq!(
        [on_huge("data")?, on_huge("shared")?, on_huge("held")?, on_huge("locked")?, on_huge("forked")?],
        [0, 0, HUGE, 2 * HUGE, 2 * HUGE],
        "{reported:#}"
    );
    assert_eq!(reported["split_bytes"].as_u64(), Some(DATA_MIB * MIB + 3 * HUGE + 4 * HUGE), "{reported:#}");
    let reason_of = |name: &str| -> Result<String, Box<dyn Error>> {
        let part = part(&parts, name)?;
        let refused = reported["refused"].as_array().ok_or("no refusals")?;
        let is_of_part =
            |one: &&Value| one["start"].as_u64().is_some_and(|start| (part.start..part.end).contains(&start));
        let one = refused.iter().find(is_of_part).ok_or_else(|| format!("{name}: {reported:#}"))?;
        Ok(one["reason"].as_str().unwrap_or_default().to_owned())
    };
    says(&reason_of("locked")?, &["EINVAL", "mlock"])?;
    says(&reason_of("held")?, &["pinned"])?;
    says(&reason_of("forked")?, &["another process"])?;
    // The zero-filled pages, and shared memory until it is accessed again. Meanwhile the program may touch others.
    let shrunk = before.saturating_sub(resident(&pid)?);
    let reported_shrunk = reported["grown_bytes"].as_i64().unwrap_or_default().saturating_neg();
    for bytes in [shrunk, reported_shrunk.try_into()?] {
        assert!(bytes.abs_diff(made + 4 * HUGE) < MIB, "{bytes} {reported:#}");
    }
    program.ends_right()
}

fn dry_run() -> TestResult {
    let (program, _) = target()?;
    let pid = program.pid();
    let before = total_huge(&pid)?;
    let text = run(&["split", &pid, "--dry-run"])?.ended_with(0)?;
    says(
        &text.stdout,
        &["HUGE PAGES  44 of 2MiB to split", "16MiB in zero-filled base pages", "shared memory"],
    )?;
    assert_eq!(total_huge(&pid)?, before);
    let heap = run(&["split", &pid, "--region", "heap"])?.ended_with(2)?;
    says(&heap.stderr, &["is not a JVM", "--region malloc"])?;
    let none = run(&["split", "4194305"])?.ended_with(2)?;
    says(&none.stderr, &["there is no process 4194305"])?;
    program.ends_right()?;
    // A program without huge pages.
    let mut sleep = Command::new("sleep").arg("100").spawn()?;
    let reported = split_process(&sleep.id().to_string(), &[], 0);
    sleep.kill()?;
    sleep.wait()?;
    assert_eq!(reported?["outcome"], "nothing_to_do");
    Ok(())
}

fn rate_and_interrupt() -> TestResult {
    let (program, parts) = target()?;
    let pid = program.pid();
    let data = part(&parts, "data")?;
    let before = total_huge(&pid)?;
    let running = Running::start(&mut hugewise(&["split", &pid, "--json", "--rate", "0.01"]))?;
    let begin = Instant::now();
    while huge(&pid, data)? == DATA_MIB * MIB {
        assert!(begin.elapsed() < MAX_WAIT_TIME, "nothing was split");
        thread::sleep(Duration::from_millis(5));
    }
    running.signal("INT")?;
    let reported = json(&running.wait()?.ended_with(130)?)?;
    assert_eq!(reported["outcome"], "interrupted", "{reported:#}");
    let split = reported["split_bytes"].as_u64().ok_or("no bytes")?;
    assert_eq!(split + total_huge(&pid)?, before, "{reported:#}");
    let refused = reported["refused"].as_array().ok_or("no refusals")?;
    let not_tried = |refusal: &Value| refusal["reason"].as_str().is_some_and(|r| r.starts_with("not tried"));
    assert!(refused.iter().any(not_tried), "{reported:#}");
    // An upper limit; on a busy machine the rate is lower.
    let reported = split_process(&pid, &["--rate", "0.125"], 1)?;
    let rate = reported["bytes_per_second"].as_f64().ok_or("no rate")?;
    assert!(rate <= 0.125 * 1_073_741_824.0 && huge(&pid, data)? == 0, "{reported:#}");
    program.ends_right()
}

fn without_rights() -> TestResult {
    let (program, _) = target()?;
    let dry = refused_without_rights(program, &["split"], &[])?;
    says(&dry, &["none that can be split", "EPERM"])
}
