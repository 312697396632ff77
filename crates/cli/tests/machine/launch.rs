//! Programs other than `java` that start JVMs: the backing that was asked for, the proof, and the exit status. Each kind of
//! program with each way in which it treats its JVM, under `run --strict`; and services whose script drops variables.

use std::{error::Error, fmt::Write, fs, os::unix::fs::PermissionsExt, path::Path};

use hugewise_linux::hugepages::backing::Backing;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    compiling::{compile, compiled},
    needs::{
        Need::{Compiler, Java, Namespaces, Root as IsRoot, Systemd as WithSystemd, Thp},
        jdks,
    },
    start::{INCONCLUSIVE, Running, hugewise, run_command, says, wait_until},
    systemd::Systemd,
    trial,
};

/// What starts the JVM.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Shell,
    Python,
    Perl,
    Binary,
    /// A script that starts its arguments, which are a shell script.
    Shim,
}

/// How it treats the options of its JVM.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Becomes the JVM.
    Plain,
    /// Starts the JVM as a child.
    Child,
    /// Removes two of the variables that every JVM reads.
    Unsets,
    /// Its command line has flags about pages.
    Overrides,
    /// Empties the environment.
    Clears,
    /// Becomes another program with as much memory.
    Other,
}

const KINDS: [Kind; 5] = [Kind::Shell, Kind::Python, Kind::Perl, Kind::Binary, Kind::Shim];
const WAYS: [Way; 6] = [Way::Plain, Way::Child, Way::Unsets, Way::Overrides, Way::Clears, Way::Other];
const HEAP: &str = "-Xms64m -Xmx64m -XX:+UseSerialGC -XX:+AlwaysPreTouch";
/// Ends half a second after the file has a content: a process that ends at once is not sampled.
const WAIT: &str = "
public class Wait {
    public static void main(String[] arguments) throws Exception {
        for (int wait = 0; wait < 6000 && new java.io.File(arguments[0]).length() == 0; wait++) Thread.sleep(100);
        Thread.sleep(500);
    }
}
";
const OTHER: &str = "import os, sys, time
x = bytearray(64 << 20)
while not os.path.exists(sys.argv[1]) or os.path.getsize(sys.argv[1]) == 0: time.sleep(0.1)
time.sleep(0.5)
";

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (k, kind) in KINDS.into_iter().enumerate() {
        for (w, way) in WAYS.into_iter().enumerate() {
            for backing in [Backing::Thp, Backing::Base] {
                let name = format!("launch: {kind:?}, {way:?}, {backing}");
                let test = trial(&name, &[IsRoot, Java, Thp, Compiler], move || proven(kind, way, backing));
                trials.push(test.representing(backing == Backing::Thp && w % KINDS.len() == k));
            }
        }
    }
    let needs = [IsRoot, Thp, Java, Namespaces, WithSystemd];
    for (kind, way) in KINDS.into_iter().flat_map(|kind| WAYS.map(|way| (kind, way))) {
        let name = format!("launch: compare, {kind:?}, {way:?}");
        let test = trial(&name, &[IsRoot, Java, Thp, Compiler], move || compared(kind, way));
        trials.push(test.representing((kind, way) == (Kind::Shell, Way::Clears)));
        let test =
            trial(&format!("launch: a service, {kind:?}, {way:?}"), &needs, move || service(kind, way));
        trials.push(test.representing(false));
    }
    trials.push(trial("launch: a service whose script reads another variable", &needs, service_that_unsets));
    trials.push(trial(
        "launch: a service that drops all variables is as before",
        &needs,
        service_that_clears,
    ));
    trials
}

/// A program in a folder, and its command line.
struct Program {
    folder: TempDir,
    _classes: TempDir,
    command: Vec<String>,
}

impl Program {
    fn new(kind: Kind, way: Way) -> Result<Program, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        let classes = compiled("Wait", WAIT)?;
        let report = folder.path().join("report.json").display().to_string();
        let java = jdks().first().ok_or("no JDK")?.java.display().to_string();
        let flags = if way == Way::Overrides { "-XX:-UseTransparentHugePages" } else { "" };
        let line = match way {
            Way::Other => format!("python3 {} {report}", write(folder.path(), "other.py", OTHER)?),
            _ => format!("{java} {flags} {HEAP} -cp {} Wait {report}", classes.path().display()),
        };
        let command = match kind {
            Kind::Shim => {
                let inner = write(folder.path(), "inner", &script(Kind::Shell, way, &line))?;
                vec![write(folder.path(), "shim", "#!/bin/sh\nexec \"$@\"\n")?, inner]
            }
            Kind::Binary => vec![compile(folder.path(), "binary", &script(kind, way, &line))?],
            _ => vec![write(folder.path(), "start", &script(kind, way, &line))?],
        };
        Ok(Program { folder, _classes: classes, command })
    }

    fn words(&self) -> Vec<&str> {
        self.command.iter().map(String::as_str).collect()
    }
}

fn write(folder: &Path, name: &str, text: &str) -> Result<String, std::io::Error> {
    let path = folder.join(name);
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path.display().to_string())
}

/// The text of a program that starts this command line.
fn script(kind: Kind, way: Way, line: &str) -> String {
    let drops = ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"];
    let mut text = match kind {
        Kind::Shell | Kind::Shim => "#!/bin/sh\n",
        Kind::Python => "#!/usr/bin/env python3\nimport os, sys\n",
        Kind::Perl => "#!/usr/bin/perl\n",
        Kind::Binary => "#include <stdlib.h>\n#include <unistd.h>\nint main(void) {\n",
    }
    .to_owned();
    for name in drops.iter().filter(|_| way == Way::Unsets) {
        let _ = match kind {
            Kind::Shell | Kind::Shim => writeln!(text, "unset {name}"),
            Kind::Python => writeln!(text, "os.environ.pop('{name}', None)"),
            Kind::Perl => writeln!(text, "delete $ENV{{{name}}};"),
            Kind::Binary => writeln!(text, "unsetenv(\"{name}\");"),
        };
    }
    let line = if way == Way::Clears { format!("env -i {line}") } else { line.to_owned() };
    let is_child = way == Way::Child;
    text + &match kind {
        Kind::Shell | Kind::Shim if is_child => format!("{line}\nexit $?\n"),
        Kind::Shell | Kind::Shim => format!("exec {line}\n"),
        Kind::Python if is_child => format!("sys.exit(os.waitstatus_to_exitcode(os.system('{line}')))\n"),
        Kind::Python => format!("os.execvp('{0}', '{line}'.split())\n", first(&line)),
        Kind::Perl if is_child => format!("exit(system('{line}') >> 8);\n"),
        Kind::Perl => format!("exec split(' ', '{line}');\n"),
        Kind::Binary if is_child => format!("return system(\"{line}\") >> 8; }}\n"),
        Kind::Binary => {
            format!("return execl(\"/bin/sh\", \"sh\", \"-c\", \"exec {line}\", (char *)0); }}\n")
        }
    }
}

fn first(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

/// Whether a JVM of this program can get options: a binary shows neither what it drops nor its flags.
fn can_be_passed(kind: Kind, way: Way) -> bool {
    match way {
        Way::Plain | Way::Child | Way::Other => true,
        Way::Unsets | Way::Overrides => !matches!(kind, Kind::Binary | Kind::Shim),
        Way::Clears => false,
    }
}

fn proven(kind: Kind, way: Way, backing: Backing) -> TestResult {
    let program = Program::new(kind, way)?;
    let report = program.folder.path().join("report.json");
    let name = backing.to_string();
    let options = [
        "run",
        "--strict",
        "--within",
        "20",
        "--backing",
        &name,
        "--report",
        &report.display().to_string(),
        "--",
    ];
    let mut call = hugewise(&[&options[..], &program.words()].concat());
    for variable in ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "GLIBC_TUNABLES"] {
        call.env_remove(variable);
    }
    let ended = Running::start(&mut call)?.wait()?;
    let seen: Value = serde_json::from_str(&fs::read_to_string(&report)?)?;
    let has_jvm = way != Way::Other;
    // On base, a JVM without options is on base pages, too.
    let is_taken = can_be_passed(kind, way) || backing == Backing::Base;
    // Some starts of glibc 2.36 ignore its tunables.
    let is_covered = has_jvm || backing == Backing::Base || seen["is_covered"] == true;
    let ended = ended.ended_with(i32::from(!is_taken || !is_covered))?;
    let expected = if has_jvm { Value::Bool(is_taken) } else { Value::Null };
    assert_eq!(seen["options_taken"], expected, "{seen:#}\n{}", ended.stderr);
    if !is_taken {
        says(&seen["notes"].to_string(), &["JVM "])?;
    }
    let regions = seen["regions"].as_array().ok_or("no regions")?;
    let wanted = if has_jvm { "heap" } else { "anonymous" };
    let region = regions.iter().find(|region| {
        region["name"].as_str().is_some_and(|name| name.starts_with(wanted))
            && region["resident_bytes"].as_u64() >= Some(60 << 20)
    });
    let coverage =
        region.and_then(|region| region["coverage"].as_f64()).ok_or_else(|| format!("{seen:#}"))?;
    let is_huge = backing == Backing::Thp && is_taken && is_covered;
    let fits = if is_huge { coverage >= 0.9 } else { coverage <= 0.05 };
    assert!(fits || !is_covered, "{seen:#}\n{}", ended.stderr);
    Ok(())
}

/// What a comparison measures is what its printed backing gives.
fn compared(kind: Kind, way: Way) -> TestResult {
    let program = Program::new(kind, way)?;
    fs::write(program.folder.path().join("report.json"), "x")?;
    let options = ["compare", "--json", "--rounds", "1", "-b", "base,thp", "--"];
    let ran = run_command(&|| hugewise(&[&options[..], &program.words()].concat()))?;
    let ran = ran.ended_with(if can_be_passed(kind, way) { INCONCLUSIVE } else { 1 })?;
    let comparison = ran.comparison()?;
    for round in &comparison.rounds {
        let share = round.coverage.ok_or("no coverage")?;
        let is_thp = comparison.design.arms[round.arm].to_string() == "thp";
        let is_huge = is_thp && round.fell_back.is_none();
        assert!(if is_huge { share >= 0.8 } else { share <= 0.05 }, "{round:#?}");
        match &round.fell_back {
            // Some starts of glibc 2.36 ignore its tunables.
            _ if way == Way::Other => {}
            Some(why) => {
                let reasons =
                    ["did not get -XX:+UseTransparentHugePages", "on its own command line, which overrides"];
                assert!(reasons.iter().any(|reason| why.contains(reason)), "{why}");
            }
            None => assert!(!is_thp || can_be_passed(kind, way), "{round:#?}"),
        }
    }
    Ok(())
}

/// A service gets its pages, or is as before.
fn service(kind: Kind, way: Way) -> TestResult {
    let program = Program::new(kind, way)?;
    fs::set_permissions(program.folder.path(), fs::Permissions::from_mode(0o755))?;
    let exec = program.command.join(" ");
    let systemd =
        Systemd::boot(UNIT, &format!("[Unit]\nDefaultDependencies=no\n[Service]\nExecStart={exec}\n"))?;
    let is_other = way == Way::Other;
    let (word, library) = if is_other { ("other.py", "python") } else { ("Wait", "libjvm") };
    let has_started = || {
        let search = format!(
            "for process in /proc/[0-9]*; do
                grep -qa {word} $process/cmdline && grep -q {library} $process/maps && exit 0
            done; exit 1"
        );
        Ok(systemd.output("sh", &["-c", &search]).is_ok())
    };
    systemd.systemctl(&["start", UNIT])?;
    wait_until("the service runs its program", has_started)?;
    let started = run_command(&|| systemd.inside(&hugewise(&["run", "--unit", UNIT, "--backing", "thp"])))?;
    let has_drop_in = systemd.output("ls", &[&format!("/run/systemd/system/{UNIT}.d")]).is_ok();
    match started.status.code() {
        // The JVM that runs shows its flags, whatever started it.
        Some(0) if (can_be_passed(kind, way) || way == Way::Overrides) && !is_other => {
            says(&started.stderr, &["heap", "on 2MiB pages"])?;
        }
        // Some starts of glibc 2.36 ignore its tunables.
        Some(0 | 1) if is_other => {}
        Some(1 | 2) if !can_be_passed(kind, way) => assert!(!has_drop_in, "{started:#?}"),
        _ => return Err(format!("{started:#?}").into()),
    }
    wait_until("the service runs its program", has_started)
}

const UNIT: &str = "search.service";

/// A systemd with a service whose script has this line before its JVM.
fn booted(line: &str, end: &str) -> Result<(Systemd, TempDir, TempDir), Box<dyn Error>> {
    let classes = compiled("Wait", WAIT)?;
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let java = jdks().first().ok_or("no JDK")?.java.display().to_string();
    let text = format!(
        "#!/bin/sh\n{line}\nexec {end} {java} {HEAP} $ES_JAVA_OPTS -cp {} Wait /gone\n",
        classes.path().display()
    );
    let script = write(folder.path(), "search", &text)?;
    let unit = format!("[Unit]\nDefaultDependencies=no\n[Service]\nExecStart={script}\n");
    let systemd = Systemd::boot(UNIT, &unit)?;
    systemd.systemctl(&["start", UNIT])?;
    wait_until("the service is a JVM", || {
        let pid = systemd.systemctl(&["show", "--property=MainPID", "--value", UNIT])?;
        let command = systemd.output("cat", &[&format!("/proc/{}/cmdline", pid.trim())]).unwrap_or_default();
        let maps = systemd.output("cat", &[&format!("/proc/{}/maps", pid.trim())]).unwrap_or_default();
        Ok(command.contains("Wait") && maps.contains("libjvm.so"))
    })?;
    Ok((systemd, classes, folder))
}

fn service_that_unsets() -> TestResult {
    let (systemd, _classes, _folder) = booted("unset JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS", "")?;
    let start = || systemd.inside(&hugewise(&["run", "--unit", UNIT, "--backing", "thp"]));
    let started = run_command(&start)?.ended_with(0)?;
    says(&started.stderr, &["ES_JAVA_OPTS has -XX:+UseTransparentHugePages", "heap", "on 2MiB pages"])
}

fn service_that_clears() -> TestResult {
    let (systemd, _classes, folder) = booted("", "env -i")?;
    let start = || systemd.inside(&hugewise(&["run", "--unit", UNIT, "--backing", "thp"]));
    // The script names no variable that it keeps.
    let refused = run_command(&start)?.ended_with(2)?;
    says(&refused.stderr, &["drops or replaces every variable"])?;
    // A program that shows nothing: the restarted JVM shows that the variable did not arrive.
    let script = folder.path().join("search");
    let hidden = fs::read_to_string(&script)?.replace("env -i", "$CLEAR").replace("$ES_JAVA_OPTS", "");
    fs::write(&script, hidden.replace("#!/bin/sh", "#!/bin/sh\nCLEAR='env -'\"i\""))?;
    let undone = run_command(&start)?.ended_with(1)?;
    says(&undone.stderr, &["did not get -XX:+UseTransparentHugePages", "was restarted as it was"])?;
    assert!(systemd.output("ls", &[&format!("/run/systemd/system/{UNIT}.d")]).is_err());
    Ok(())
}
