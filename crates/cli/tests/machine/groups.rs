//! Processes that are named by their unit or control group.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::{
    TestResult, Trial,
    compiling::compiled,
    memory_group::Group,
    needs::{
        Need::{Java, MemoryGroup, Root},
        jdks,
    },
    start::{run, says, wait_until},
    trial,
};

pub fn trials() -> Vec<Trial> {
    vec![trial("groups: a unit names its processes, or its JVM", &[Root, Java, MemoryGroup], unit)]
}

const WAIT: &str =
    "public class Wait { public static void main(String[] a) throws Exception { System.in.read(); } }";

fn unit() -> TestResult {
    let group = Group::make()?;
    let path = group.0.display().to_string();
    let unit = group.0.file_name().ok_or("no name")?.to_string_lossy().into_owned();
    let none = run(&["inspect", &unit])?.ended_with(2)?;
    says(&none.stderr, &["no process runs in unit", &unit])?;

    let classes = compiled("Wait", WAIT)?;
    let java = jdks().first().ok_or("no JDK")?.java.display().to_string();
    let one = format!("{java} -Xmx64m -XX:+UseSerialGC -cp {} Wait", classes.path().display());
    let mut shell = start(&group, &format!("{one}; exit 0"), 1)?;
    let (all, chosen) = (pids(&group)?, run(&["collapse", "--dry-run", "--json", &unit])?);
    let (inspected, planned) =
        (run(&["inspect", "--json", &path])?, run(&["plan", "--json", "--pid", &unit])?);
    let drop_in = run(&["plan", "--format", "systemd", "--pid", &unit])?;
    end(&mut shell)?;
    says(
        &drop_in.ended_with(0)?.stdout,
        &[&format!("/etc/systemd/system/{unit}.d/"), &format!("restart {unit}\n")],
    )?;
    let pid_of = |text: &str| serde_json::from_str::<Value>(text).map(|document| document["pid"].as_u64());
    let listed: Vec<Option<u64>> =
        inspected.ended_with(0)?.stdout.lines().map(pid_of).collect::<Result<_, _>>()?;
    assert_eq!(listed, all.iter().copied().map(Some).collect::<Vec<_>>());
    let others: Vec<u64> = all.into_iter().filter(|pid| *pid != u64::from(shell.id())).collect();
    let taken = pid_of(&chosen.stdout)?;
    assert_eq!(vec![taken], others.into_iter().map(Some).collect::<Vec<_>>(), "{chosen:#?}");
    says(&chosen.stderr, &[&unit, "has 2 processes; takes", "(java)"])?;
    let plan: Value = serde_json::from_str(&planned.stdout)?;
    says(&plan["notes"].to_string(), &["this JVM runs as process"])?;

    // A shell gives what it starts in the background an empty input, at whose end it would end.
    let mut shell = start(&group, &format!("exec 3<&0; {one} <&3 & {one}; wait"), 2)?;
    let refused = run(&["plan", "--pid", &unit]);
    end(&mut shell)?;
    says(&refused?.ended_with(2)?.stderr, &["has several programs; name a process: ", "(java), "])
}

/// A shell in the group that runs `script`, when the group has so many JVMs.
fn start(group: &Group, script: &str, jvms: usize) -> Result<Child, Box<dyn std::error::Error>> {
    let procs = group.0.join("cgroup.procs").display().to_string();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("echo $$ > \"$0\"; {script}"), &procs]);
    let shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    wait_until("the JVMs run", || {
        let maps = |pid: &u64| fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        Ok(pids(group)?.iter().filter(|pid| maps(pid).contains("classes.jsa")).count() == jvms)
    })?;
    Ok(shell)
}

/// The JVMs end at the end of their input.
fn end(shell: &mut Child) -> TestResult {
    drop(shell.stdin.take());
    shell.wait()?;
    Ok(())
}

fn pids(group: &Group) -> Result<Vec<u64>, Box<dyn std::error::Error>> {
    let procs = fs::read_to_string(group.0.join("cgroup.procs"))?;
    let mut pids: Vec<u64> = procs.lines().map(str::parse).collect::<Result<_, _>>()?;
    pids.sort_unstable();
    Ok(pids)
}
