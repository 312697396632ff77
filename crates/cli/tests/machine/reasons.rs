//! Each reason for base pages: a program that has it, and a neighbour that does not.

use std::{error::Error, fs, path::Path, process::Command};

use hugewise_linux::settings::Setting;
use serde_json::Value;

use crate::{
    TestResult, Trial,
    collapse::{Program, part, start_target},
    inspect::{grow_pool, journal},
    needs::Need::{Compiler, Namespaces, Pool, Root as Rights, Thp},
    skip,
    start::run,
    trial,
};

const TARGET: &str = include_str!("reasons_target.c");
const MIB: u64 = 1 << 20;

pub fn trials() -> Vec<Trial> {
    let needs = [Rights, Thp, Compiler];
    let mut trials: Vec<Trial> = ["prctl", "refused", "late", "holes", "plain", "stack"]
        .map(|kind| trial(&format!("reasons: {kind}"), &needs, move || private_memory(kind)))
        .into();
    trials.extend([
        trial("reasons: the mount of a tmpfs says never", &[Rights, Thp, Compiler, Namespaces], mounts),
        trial("reasons: THP for advised memory only", &needs, except_advised),
        trial("reasons: the allocator of redis-server", &needs, allocator),
        trial(
            "reasons: a file on hugetlbfs that no process maps",
            &[Rights, Pool, Compiler, Namespaces],
            left_file,
        ),
    ]);
    trials
}

/// The region with the memory of a target.
fn inspected(program: &Program, start: u64) -> Result<Value, Box<dyn Error>> {
    let ran = run(&["inspect", &program.pid(), "--json"])?.ended_with(0)?;
    let inspected: Value = serde_json::from_str(&ran.stdout)?;
    let regions = inspected["regions"].as_array().ok_or("no regions")?;
    let holds = |region: &&Value| {
        let at = |name: &str| region[name].as_u64().unwrap_or(0);
        at("start") <= start && start < at("end")
    };
    Ok(regions.iter().find(holds).ok_or("no region")?.clone())
}

fn text_of<'a>(region: &'a Value, field: &str) -> &'a str {
    region[field].as_str().unwrap_or_default()
}

fn private_memory(kind: &'static str) -> TestResult {
    let mut journal = journal()?;
    journal.set(Setting::ThpEnabled { page_size: None }, "madvise")?;
    let (program, parts) = start_target(TARGET, 16, |command| {
        command.arg(kind);
    })?;
    let memory = part(&parts, "memory")?;
    let region = inspected(&program, memory.start)?;
    let marks_stacks = fs::read_to_string(format!("/proc/{}/smaps", program.pid()))?.contains(" nh ");
    let expected = match kind {
        "prctl" => "off_by_prctl",
        "refused" => "off_here",
        "holes" => "holes",
        "plain" => "never_advised",
        "stack" if marks_stacks => "thread_stack",
        "stack" => "never_advised",
        _ => "eligible",
    };
    let huge = region["bytes_by_page_size"]["2097152"].as_u64().unwrap_or(0);
    if kind == "holes" && text_of(&region, "reason") != expected && huge == 0 {
        return skip("the kernel had no free huge page");
    }
    let reason = text_of(&region, "reason");
    // No huge-page allocation has failed since boot: the only cause that remains.
    assert!(
        reason == expected || (kind == "late" && reason == "advised_after_touch"),
        "{expected}: {region:#}"
    );
    let suitable = region["suitable_bytes"].as_u64().unwrap_or(0);
    match kind {
        "stack" if marks_stacks => assert_eq!(suitable, 0, "{region:#}"),
        _ => assert!(suitable >= 7 * MIB, "{region:#}"),
    }
    let actions = region["actions"].to_string();
    // Half of each range is missing: too little for `collapse`.
    let can_collapse = ["plain", "late"].contains(&kind);
    assert_eq!(actions.contains("hugewise collapse"), can_collapse, "{region:#}");
    Ok(())
}

fn mounts() -> TestResult {
    let folder = tempfile::tempdir()?;
    let (program, parts) = start_target(TARGET, 16, |command| {
        command.args(["file", &format!("/dev/shm/hugewise-reasons-{}", std::process::id())]);
    })?;
    let file = format!("/dev/shm/hugewise-reasons-{}", std::process::id());
    let region = inspected(&program, part(&parts, "memory")?.start);
    fs::remove_file(&file)?;
    let region = region?;
    let options = fs::read_to_string("/proc/self/mountinfo")?;
    if options.lines().any(|line| line.contains(" /dev/shm ") && line.contains("huge=")) {
        return skip("/dev/shm is mounted with huge=");
    }
    assert_eq!(text_of(&region, "reason"), "off_by_mount", "{region:#}");
    let actions = region["actions"].to_string();
    assert!(actions.contains("mount -o remount,huge=advise /dev/shm"), "{region:#}");
    assert!(!actions.contains("shmem_enabled"), "{region:#}");
    drop(program);

    // The neighbour: another tmpfs with huge=always, in a mount namespace of its own.
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "huge=always", "t"]).arg(folder.path()).status()?;
    assert!(mounted.success());
    let file = folder.path().join("file");
    let started = start_target(TARGET, 16, |command| {
        command.arg("file").arg(&file);
    });
    let region = started.and_then(|(program, parts)| inspected(&program, part(&parts, "memory")?.start));
    Command::new("umount").arg("-l").arg(folder.path()).status()?;
    let region = region?;
    assert_eq!(text_of(&region, "kind"), "shared", "{region:#}");
    assert!(text_of(&region, "name").ends_with("(tmpfs)"), "{region:#}");
    let huge = region["bytes_by_page_size"]["2097152"].as_u64().unwrap_or(0);
    if huge == 0 {
        return skip("the kernel had no free huge page");
    }
    assert_eq!(huge, 16 * MIB, "{region:#}");
    Ok(())
}

fn except_advised() -> TestResult {
    let mut journal = journal()?;
    journal.set(Setting::ThpEnabled { page_size: None }, "always")?;
    let reason = |kind: &'static str| -> Result<Option<Value>, Box<dyn Error>> {
        let (program, parts) = start_target(TARGET, 16, |command| {
            command.arg(kind);
        })?;
        let Ok(memory) = part(&parts, "memory") else { return Ok(None) };
        inspected(&program, memory.start).map(Some)
    };
    let Some(region) = reason("except")? else {
        return skip("no PR_THP_DISABLE_EXCEPT_ADVISED before Linux 6.18");
    };
    assert_eq!(text_of(&region, "reason"), "off_unless_advised", "{region:#}");
    assert!(region["actions"].to_string().contains("MemoryTHP=madvise"), "{region:#}");
    let plain = reason("plain")?.ok_or("no memory")?;
    assert_ne!(text_of(&plain, "reason"), "off_unless_advised", "{plain:#}");
    Ok(())
}

fn allocator() -> TestResult {
    if !Path::new("/usr/bin/redis-server").exists() {
        return skip("no redis-server");
    }
    let mut command = Command::new("/usr/bin/redis-server");
    let folder = tempfile::tempdir()?;
    command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(folder.path().join("socket"));
    let mut program = Program::start(&mut command, folder)?;
    while !program.until("")?.concat().contains("eady to accept connections") {}
    let ran = run(&["inspect", &program.pid(), "--json"])?.ended_with(0)?;
    let inspected: Value = serde_json::from_str(&ran.stdout)?;
    let regions = inspected["regions"].as_array().ok_or("no regions")?;
    let named = |name: &str| regions.iter().filter(|region| text_of(region, "name").contains(name)).count();
    if named("libjemalloc") == 0 {
        return skip("this redis-server has no jemalloc");
    }
    assert!(named("anonymous (jemalloc or mmap)") > 0 && named("malloc arena") == 0, "{inspected:#}");
    let threads = fs::read_dir(format!("/proc/{}/task", program.pid()))?.count();
    assert!(named("stack of") <= threads + 1, "{inspected:#}");
    Ok(())
}

fn left_file() -> TestResult {
    let mut journal = journal()?;
    grow_pool(&mut journal, 8)?;
    let folder = tempfile::tempdir()?;
    let mounted = Command::new("mount")
        .args(["-t", "hugetlbfs", "-o", "pagesize=2M", "none"])
        .arg(folder.path())
        .status()?;
    assert!(mounted.success());
    let file = folder.path().join("left");
    let found = || -> Result<(Vec<Value>, String), Box<dyn Error>> {
        let ran = run(&["check", "--json"])?;
        let report: Value = serde_json::from_str(&ran.stdout)?;
        let findings = report["findings"].as_array().ok_or("no findings")?.clone();
        Ok((
            findings.into_iter().filter(|one| one["id"] == "pool-files").collect(),
            run(&["inspect", "--all"])?.stdout,
        ))
    };
    let checked = || -> TestResult {
        let (program, _) = start_target(TARGET, 8, |command| {
            command.arg("file").arg(&file);
        })?;
        let (while_mapped, overview) = found()?;
        assert!(while_mapped.is_empty(), "{while_mapped:#?}");
        assert!(overview.contains(&format!("process {}", program.pid())), "{overview}");
        drop(program);
        let (left, overview) = found()?;
        let detail = left.first().map(|one| text_of(one, "detail")).unwrap_or_default();
        assert!(detail.contains("4 pages (8MiB)") && detail.contains("which no process maps"), "{left:#?}");
        let file = file.to_str().ok_or("a path that is not UTF-8")?;
        assert!(left[0]["actions"].to_string().contains(&format!("rm -i {file}")), "{left:#?}");
        assert!(overview.contains("left, which no process maps"), "{overview}");
        Ok(())
    };
    let result = checked();
    let _ = fs::remove_file(&file);
    Command::new("umount").arg(folder.path()).status()?;
    result
}
