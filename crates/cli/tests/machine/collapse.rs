//! `collapse`: memory of running programs is collapsed, and each refusal has its reason.

use std::{
    collections::BTreeSet,
    error::Error,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    compiling::compile,
    memory_group::Group,
    needs::Need::{Compiler, MemoryGroup, Root, Thp},
    settings::MAX_WAIT_TIME,
    start::{EndedProcess, Running, hugewise, run, run_command, says},
    trial,
    without::{UNPRIVILEGED, accessible_copy},
};

pub const MIB: u64 = 1 << 20;
pub const HUGE: u64 = 2 * MIB;
const TARGET: &str = include_str!("collapse_target.c");

pub fn trials() -> Vec<Trial> {
    let c = [Root, Thp, Compiler];
    vec![
        trial("collapse: memory of each kind, and the reason of each refusal", &c, kinds),
        trial("collapse: a dry run changes nothing", &c, dry_run),
        trial("collapse: the rate is kept, and Ctrl-C stops", &c, rate_and_interrupt),
        trial("collapse: a program that ends during it", &c, ends_meanwhile),
        trial("collapse: pauses while threads stall", &c, rests),
        trial("collapse: a program with THP disabled by prctl", &c, given_up),
        trial("collapse: without the capabilities", &c, without_rights),
        trial("collapse: a limit of the control group", &[Root, Thp, Compiler, MemoryGroup], group_limit),
    ]
}

/// A program that prints its mappings, and runs until its standard input is closed.
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    _folder: TempDir,
}

impl Program {
    pub fn start(command: &mut Command, folder: TempDir) -> Result<Program, Box<dyn Error>> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take().ok_or("no output")?);
        Ok(Program { child, input, output: BufReader::new(output), _folder: folder })
    }

    /// Its output up to the first line that starts with `word`.
    pub fn until(&mut self, word: &str) -> Result<Vec<String>, Box<dyn Error>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err(format!("the program ended before it printed '{word}': {lines:?}").into());
            }
            lines.push(line.trim().to_owned());
            if line.starts_with(word) {
                return Ok(lines);
            }
        }
    }

    pub fn send(&mut self, line: &str) -> TestResult {
        Ok(self.input.as_mut().ok_or("no input")?.write_all(line.as_bytes())?)
    }

    /// Sends a line and returns the answer.
    pub fn ask(&mut self, line: &str) -> Result<String, Box<dyn Error>> {
        self.send(line)?;
        self.until("").map(|lines| lines.concat())
    }

    /// Closes its standard input; it then checks that its memory is unchanged.
    pub fn ends_right(mut self) -> TestResult {
        drop(self.input.take());
        self.until("right")?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("it ended with {status}").into()) }
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts collapse_target.c and waits until it has allocated its memory; returns it with its mappings.
fn target(megabytes: u64, prepare: impl Fn(&mut Command)) -> Result<(Program, Vec<Part>), Box<dyn Error>> {
    start_target(TARGET, megabytes, prepare)
}

/// Starts a C program that prints its mappings and then `ready`; returns it with its mappings.
pub fn start_target(
    source: &str,
    megabytes: u64,
    prepare: impl Fn(&mut Command),
) -> Result<(Program, Vec<Part>), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let binary = compile(folder.path(), "target", source)?;
    let mut command = Command::new(binary);
    command.arg(megabytes.to_string());
    prepare(&mut command);
    let mut program = Program::start(&mut command, folder)?;
    let lines = program.until("ready")?;
    let part = |line: &String| -> Option<Part> {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, start, end] = words[..] else { return None };
        Some(Part { name: name.to_owned(), start: start.parse().ok()?, end: end.parse().ok()? })
    };
    Ok((program, lines.iter().filter_map(part).collect()))
}

#[derive(Debug)]
pub struct Part {
    pub name: String,
    pub start: u64,
    pub end: u64,
}

pub fn part<'a>(parts: &'a [Part], name: &str) -> Result<&'a Part, Box<dyn Error>> {
    parts.iter().find(|part| part.name == name).ok_or_else(|| format!("no {name}: {parts:?}").into())
}

/// Bytes of a mapping on huge pages, from smaps.
pub fn huge(pid: &str, part: &Part) -> Result<u64, Box<dyn Error>> {
    let mut sum = 0;
    let mut inside = false;
    for line in fs::read_to_string(format!("/proc/{pid}/smaps"))?.lines() {
        if let Some((start, end)) = line.split(' ').next().and_then(|range| range.split_once('-')) {
            let (start, end) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16));
            if let (Ok(start), Ok(end)) = (start, end) {
                inside = start < part.end && part.start < end;
            }
        }
        let counted = line.strip_prefix("AnonHugePages:").or(line.strip_prefix("ShmemPmdMapped:"));
        if let (true, Some(kib)) = (inside, counted) {
            sum += kib.trim().trim_end_matches(" kB").parse::<u64>()? << 10;
        }
    }
    Ok(sum)
}

pub fn json(ran: &EndedProcess) -> Result<Value, Box<dyn Error>> {
    serde_json::from_str(&ran.stdout).map_err(|error| format!("{error}: {ran:#?}").into())
}

/// Runs `collapse` with `--allow-reclaim`, because the page cache may have used up free memory.
pub fn collapse(pid: &str, options: &[&str], status: i32) -> Result<Value, Box<dyn Error>> {
    let arguments = [&["collapse", pid, "--json", "--allow-reclaim"], options].concat();
    json(&run(&arguments)?.ended_with(status)?)
}

fn kinds() -> TestResult {
    let (program, parts) = target(32, |_| ())?;
    let reported = collapse(&program.pid(), &[], 1)?;
    // The two pages in the middle of `held` are pinned.
    let held = part(&parts, "held")?;
    let refused = reported["refused"].as_array().ok_or("no refusals")?;
    assert_eq!(refused.len(), 1, "{reported:#}");
    assert_eq!(refused[0]["start"].as_u64(), Some(held.start + HUGE), "{reported:#}");
    assert_eq!(refused[0]["end"].as_u64(), Some(held.start + 3 * HUGE), "{reported:#}");
    says(refused[0]["reason"].as_str().unwrap_or_default(), &["EAGAIN", "pinned"])?;
    assert_eq!(reported["outcome"], "finished");
    let malloc = part(&parts, "malloc")?;
    let whole = malloc.end / HUGE - malloc.start.div_ceil(HUGE);
    // Neighbouring mappings that the kernel merged with it may count, too.
    assert!(huge(&program.pid(), malloc)? >= whole * HUGE, "{reported:#}");
    assert_eq!(huge(&program.pid(), part(&parts, "shared")?)?, 4 * HUGE);
    assert_eq!(huge(&program.pid(), part(&parts, "advised")?)?, 0);
    let regions = reported["regions"].as_array().ok_or("no regions")?;
    let left_out: u64 =
        regions.iter().filter_map(|region| region["skipped_bytes"]["off_here"].as_u64()).sum();
    assert_eq!(left_out, 4 * HUGE, "{reported:#}");
    let sparse: u64 = regions.iter().filter_map(|region| region["sparse"]["pages"].as_u64()).sum();
    assert_eq!(sparse, 4, "{reported:#}");
    assert!(reported["grown_bytes"].as_i64().is_some_and(|grown| grown < MIB as i64), "{reported:#}");

    // Collapsing sparse ranges allocates three times their resident memory, which the report contains.
    let reported = collapse(&program.pid(), &["--region", "malloc", "--min-present", "20"], 1)?;
    assert_eq!(reported["holes_bytes"].as_u64(), Some(3 * HUGE), "{reported:#}");
    assert_eq!(reported["grown_bytes"].as_i64(), Some(3 * HUGE as i64), "{reported:#}");
    program.ends_right()
}

fn dry_run() -> TestResult {
    let (program, parts) = target(32, |_| ())?;
    let reported = collapse(&program.pid(), &["--dry-run"], 0)?;
    assert_eq!((&reported["outcome"], &reported["after"]), (&"dry_run".into(), &Value::Null));
    assert!(reported["candidates"]["pages"].as_u64().is_some_and(|pages| pages >= 15 + 8), "{reported:#}");
    for part in &parts {
        assert_eq!(huge(&program.pid(), part)?, 0, "{}", part.name);
    }
    let text = run(&["collapse", &program.pid(), "--dry-run", "--allow-reclaim"])?.ended_with(0)?;
    says(&text.stdout, &["CANDIDATES", "AVAILABLE", "MADV_NOHUGEPAGE"])?;
    same_reasons_as_inspect(&program.pid(), &reported)?;
    let heap = run(&["collapse", &program.pid(), "--region", "heap"])?.ended_with(2)?;
    says(&heap.stderr, &["is not a JVM", "--region malloc"])?;
    let none = run(&["collapse", "4194305"])?.ended_with(2)?;
    says(&none.stderr, &["there is no process 4194305"])?;
    program.ends_right()
}

/// Every region that one command skips or reports for one reason has that reason in the other command, too.
fn same_reasons_as_inspect(pid: &str, reported: &Value) -> TestResult {
    let inspected = json(&run(&["inspect", "--json", pid])?.ended_with(0)?)?;
    let list = |document: &Value| document["regions"].as_array().cloned().unwrap_or_default();
    let mut compared = BTreeSet::new();
    for skipped in list(reported) {
        let reasons: Vec<&String> =
            skipped["skipped_bytes"].as_object().into_iter().flatten().map(|it| it.0).collect();
        let [reason] = reasons[..] else { continue };
        for region in list(&inspected).iter().filter(|region| region["name"] == skipped["name"]) {
            let of_part = skipped["candidates"]["pages"] != 0 || region["mappings"] != 1;
            if of_part || region["reason"].is_null() {
                continue;
            }
            assert_eq!(region["reason"], reason.as_str(), "{region:#} {skipped:#}");
            compared.insert(reason.clone());
        }
    }
    assert!(compared.len() > 1, "{compared:?} {reported:#}");
    Ok(())
}

fn rate_and_interrupt() -> TestResult {
    let (program, parts) = target(64, |_| ())?;
    let reported = collapse(&program.pid(), &["--region", "malloc", "--rate", "0.125"], 1)?;
    // An upper limit; on a busy machine the rate is lower.
    assert!(
        reported["bytes_per_second"].as_f64().is_some_and(|rate| rate <= 0.125 * 1_073_741_824.0),
        "{reported:#}"
    );
    program.ends_right()?;

    let (program, _) = target(64, |_| ())?;
    let arguments =
        ["collapse", &program.pid(), "--allow-reclaim", "--json", "--region", "malloc", "--rate", "0.001"];
    let running = Running::start(&mut hugewise(&arguments))?;
    let begin = Instant::now();
    while huge(&program.pid(), part(&parts, "malloc")?)? == 0 && total_huge(&program.pid())? == 0 {
        assert!(begin.elapsed() < MAX_WAIT_TIME, "nothing was converted");
        thread::sleep(Duration::from_millis(5));
    }
    running.signal("INT")?;
    let reported = json(&running.wait()?.ended_with(130)?)?;
    assert_eq!(reported["outcome"], "interrupted", "{reported:#}");
    assert!(reported["collapsed_bytes"].as_u64().is_some_and(|bytes| bytes >= HUGE), "{reported:#}");
    let refused = reported["refused"].as_array().ok_or("no refusals")?;
    let not_tried = |refusal: &Value| refusal["reason"].as_str().is_some_and(|r| r.starts_with("not tried"));
    assert!(refused.iter().any(not_tried), "{reported:#}");
    program.ends_right()
}

pub fn total_huge(pid: &str) -> Result<u64, Box<dyn Error>> {
    huge(pid, &Part { name: String::new(), start: 0, end: u64::MAX })
}

fn ends_meanwhile() -> TestResult {
    let (mut program, _) = target(64, |_| ())?;
    let arguments = ["collapse", &program.pid(), "--allow-reclaim", "--rate", "0.001"];
    let running = Running::start(&mut hugewise(&arguments))?;
    let begin = Instant::now();
    while total_huge(&program.pid())? == 0 {
        assert!(begin.elapsed() < MAX_WAIT_TIME, "nothing was converted");
        thread::sleep(Duration::from_millis(5));
    }
    program.child.kill()?;
    program.child.wait()?;
    let ran = running.wait()?.ended_with(1)?;
    says(&ran.stdout, &["STOPPED", "the process ended"])?;
    assert_eq!(ran.stderr, "");
    Ok(())
}

fn rests() -> TestResult {
    let (mut program, _) = target(32, |_| ())?;
    let arguments =
        ["collapse", &program.pid(), "--allow-reclaim", "--json", "--region", "malloc", "--rate", "0.01"];
    let running = Running::start(&mut hugewise(&arguments))?;
    let begin = Instant::now();
    while total_huge(&program.pid())? == 0 {
        assert!(begin.elapsed() < MAX_WAIT_TIME, "nothing was converted");
        thread::sleep(Duration::from_millis(5));
    }
    Command::new("sh").args(["-c", "kill -s USR1 \"$0\"", &program.pid()]).status()?;
    let reported = json(&running.wait()?.ended_with(1)?)?;
    program.input.as_mut().ok_or("no input")?.write_all(b"\n")?;
    // It stalls also while collapsing pauses, so collapsing is not the cause and continues.
    assert_eq!(reported["outcome"], "finished", "{reported:#}");
    let paused = reported["paused"].as_array().ok_or("no pauses")?;
    let stall = paused.iter().find(|pause| pause["reason"] == "threads_stall");
    assert!(stall.is_some_and(|stall| stall["times"].as_u64() >= Some(1)), "{reported:#}");
    program.ends_right()
}

fn given_up() -> TestResult {
    // The flag is inherited from hugewise, which starts the program on base pages.
    let folder = tempfile::tempdir()?;
    let binary = compile(folder.path(), "target", TARGET)?;
    let mut command = hugewise(&["run", "--quiet", "--backing", "base", "--", &binary, "8"]);
    let mut program = Program::start(&mut command, folder)?;
    program.until("ready")?;
    let reported = collapse(&program.pid(), &[], 0)?;
    assert_eq!(reported["outcome"], "nothing_to_do", "{reported:#}");
    let regions = reported["regions"].as_array().ok_or("no regions")?;
    let off: u64 = regions.iter().filter_map(|region| region["skipped_bytes"]["off_by_prctl"].as_u64()).sum();
    assert!(off >= 8 * MIB, "{reported:#}");
    assert_eq!(total_huge(&program.pid())?, 0);
    program.ends_right()
}

fn without_rights() -> TestResult {
    let (program, _) = target(8, |_| ())?;
    let dry = refused_without_rights(program, &["collapse"], &["--allow-reclaim"])?;
    says(&dry, &["none: nothing left"])
}

/// Runs `command` on `program` and on a process of the same user, without privileges: refused with the reasons.
/// Returns the output of the dry run on the latter.
pub fn refused_without_rights(
    program: Program,
    command: &[&str],
    options: &[&str],
) -> Result<String, Box<dyn Error>> {
    let (_folder, hugewise, _temporary) = accessible_copy()?;
    let as_no_process = |pid: &str, option: &str| -> Result<EndedProcess, Box<dyn Error>> {
        let make = || {
            let mut made = Command::new(&hugewise);
            made.args(command).args([pid, option]).args(options).current_dir("/");
            made.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
            made
        };
        run_command(&make)
    };
    let ran = as_no_process(&program.pid(), "--json")?.ended_with(2)?;
    says(&ran.stderr, &["CAP_SYS_NICE", "CAP_SYS_PTRACE", "uid 0"])?;
    program.ends_right()?;
    // A process of the same user can be read, but not changed.
    let mut own = Command::new("sleep").arg("100").uid(UNPRIVILEGED).gid(UNPRIVILEGED).spawn()?;
    let begin = Instant::now();
    while fs::read_to_string(format!("/proc/{}/comm", own.id()))?.trim() != "sleep"
        && begin.elapsed() < MAX_WAIT_TIME
    {
        thread::sleep(Duration::from_millis(2));
    }
    let pid = own.id().to_string();
    let (dry, real) = (as_no_process(&pid, "--dry-run"), as_no_process(&pid, "--json"));
    own.kill()?;
    own.wait()?;
    let dry = dry?.ended_with(0)?.stdout;
    says(&dry, &["CAP_SYS_NICE"])?;
    let real = real?.ended_with(2)?;
    assert!(real.stderr.contains("CAP_SYS_NICE") && !real.stderr.contains("PTRACE"), "{}", real.stderr);
    Ok(dry)
}

fn group_limit() -> TestResult {
    let group = Group::make()?;
    let folder = tempfile::tempdir()?;
    let binary = compile(folder.path(), "target", TARGET)?;
    let mut command = Command::new("sh");
    let procs = group.0.join("cgroup.procs").display().to_string();
    command.args(["-c", "echo $$ > \"$0\" && exec \"$1\" 32", &procs, &binary]);
    let mut program = Program::start(&mut command, folder)?;
    program.until("ready")?;
    let used: u64 =
        fs::read_to_string(group.file("memory.usage_in_bytes", "memory.current"))?.trim().parse()?;
    let file = group.file("memory.limit_in_bytes", "memory.max");
    let leave = |bytes: u64| fs::write(&file, (used + bytes).to_string());
    leave(MIB / 2)?;
    let pid = program.pid();
    let in_malloc = ["--region", "malloc"];
    let mut raise = String::new();
    for options in [&["--dry-run"][..], &[]] {
        let refused = collapse(&pid, &[&in_malloc[..], options].concat(), 1)?;
        says(refused["detail"].as_str().unwrap_or_default(), &[&file.display().to_string(), "are needed"])?;
        assert_eq!(refused["collapsed_bytes"], 0, "{refused:#}");
        raise = refused["actions"][0]["command"].as_str().ok_or("no action")?.replace("sudo ", "");
    }
    // A lower limit during the work.
    leave(8 * MIB)?;
    let slow = ["collapse", &pid, "--json", "--region", "malloc", "--allow-reclaim", "--rate", "0.01"];
    let running = Running::start(&mut hugewise(&slow))?;
    let begin = Instant::now();
    while total_huge(&pid)? == 0 && begin.elapsed() < MAX_WAIT_TIME {
        thread::sleep(Duration::from_millis(5));
    }
    leave(MIB / 2)?;
    let reported = json(&running.wait()?.ended_with(1)?)?;
    assert_eq!(reported["outcome"], "group_limit", "{reported:#}");
    let words = reported["actions"][0]["change"].as_str().unwrap_or_default();
    says(words, &[&file.file_name().unwrap_or_default().to_string_lossy()])?;
    says(&reported["refused"].to_string(), &["EBUSY"])?;
    // The printed action suffices for all: each collapse frees the base pages.
    Command::new("sh").args(["-c", &raise]).output()?;
    let reported = collapse(&pid, &in_malloc, 1)?;
    assert_eq!(
        (&reported["outcome"], reported["refused"].as_array().map(Vec::len)),
        (&"finished".into(), Some(1))
    );
    program.ends_right()
}
