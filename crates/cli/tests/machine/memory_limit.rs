//! JVMs in a control group with less memory than their heaps may take.

use std::{os::unix::process::ExitStatusExt, process::Command};

use crate::Trial;
use hugewise_linux::units::Bytes;
use serde_json::Value;

use crate::{
    TestResult,
    memory_group::Group,
    needs::Need::{Java, MemoryGroup, Root},
    start::{EndedProcess, hugewise, run_command, says},
    trial,
};

const SIGKILL: i32 = 9;
const LIMIT_BYTES: u64 = 600 << 20;
const HEAP: [&str; 5] = ["--", "java", "-Xms1g", "-Xmx1g", "-XX:+AlwaysPreTouch"];

pub fn trials() -> Vec<Trial> {
    let name = "plan and run: a heap beyond the memory limit is warned of before it is killed";
    vec![trial(name, &[Root, Java, MemoryGroup], warned_before_the_kill)]
}

fn warned_before_the_kill() -> TestResult {
    let group = Group::with_limit(Bytes(LIMIT_BYTES))?;
    let procs = group.0.join("cgroup.procs").display().to_string();
    let within = |arguments: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\"", &procs]);
        let program = hugewise(arguments);
        command.arg(program.get_program()).args(program.get_args());
        command
    };
    let in_group = |options: &[&str], program: &[&str]| -> Result<EndedProcess, Box<dyn std::error::Error>> {
        let arguments = [options, &HEAP, program].concat();
        run_command(&|| within(&arguments))
    };
    let planned = in_group(&["plan", "--json", "--backing", "thp"], &["Main"])?.ended_with(1)?;
    let plan: Value = serde_json::from_str(&planned.stdout)?;
    assert_eq!(plan["verdict"], "dies_out_of_memory", "{plan:#}");
    let available = plan["memory"]["available_bytes"].as_u64();
    assert!(available.is_some_and(|bytes| bytes <= LIMIT_BYTES), "{plan:#}");

    let strict = in_group(&["run", "--backing", "thp", "--strict"], &["-version"])?.ended_with(2)?;
    says(&strict.stderr, &["its heap may take 1GiB", "--strict"])?;
    assert!(!strict.stderr.contains("openjdk version"), "{strict:#?}");

    // The prediction comes true. Not by `run_command`, which reports a killed process as hung.
    let arguments = [&["run", "--backing", "base"][..], &HEAP, &["-version"]].concat();
    let killed = within(&arguments).output()?;
    let said = String::from_utf8_lossy(&killed.stderr).into_owned();
    says(&said, &["warning: the control group allows", "and its heap may take 1GiB"])?;
    assert_eq!(killed.status.signal(), Some(SIGKILL), "{said}");
    Ok(())
}
