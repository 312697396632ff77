//! `restore` where /run is full or read-only, beside settings that another program changed, and in another mount
//! namespace.

use std::{error::Error, fs, path::Path, process::Command};

use crate::{
    TestResult, Trial,
    killed_comparison::{changed_the_pool, comparison, killed},
    needs::Need::{Namespaces, Pool, Root, Strace},
    settings::{APPLIED, JOURNAL},
    start::{EndedProcess, Running, hugewise, run, run_command, says},
    trial,
};

const NR: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const DEFRAG: &str = "/sys/kernel/mm/transparent_hugepage/defrag";

type Named = (&'static str, fn() -> TestResult);

pub fn trials() -> Vec<Trial> {
    let tests: [Named; 4] = [
        ("restore works on a full /run", on_a_full_run),
        ("restore works on a read-only /run", on_a_read_only_run),
        ("a killed and an ended command leave what another program changed", beside_foreign_changes),
        ("another mount namespace that holds the lock or the journal is named", in_another_namespace),
    ];
    let mut trials: Vec<Trial> =
        tests.into_iter().map(|(name, test)| trial(name, &[Root, Pool, Namespaces], test)).collect();
    let name = "the journal is written and synced before a setting";
    trials.push(trial(name, &[Root, Pool, Strace], synced_before_written));
    trials
}

/// A mount namespace with an empty /run of 256 KiB. Restores all settings when dropped.
struct Namespace {
    holder: Running,
}

impl Namespace {
    fn new() -> Result<Namespace, Box<dyn Error>> {
        let ready = tempfile::tempdir()?.keep();
        let script =
            format!("mount -t tmpfs -o size=256k none /run && rmdir {} && exec sleep 3600", ready.display());
        let holder = Running::start(Command::new("unshare").args(["-m", "sh", "-c", &script]))?;
        let namespace = Namespace { holder };
        crate::start::wait_until("a mount namespace", || Ok(!ready.exists()))?;
        Ok(namespace)
    }

    fn inside(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.holder.child.id().to_string(), program]).args(arguments);
        for variable in ["JAVA_TOOL_OPTIONS", "JAVA_HOME"] {
            command.env_remove(variable);
        }
        command
    }

    fn hugewise(&self, arguments: &[&str]) -> Result<EndedProcess, Box<dyn Error>> {
        run_command(&|| self.inside(env!("CARGO_BIN_EXE_hugewise"), arguments))
    }

    fn shell(&self, script: &str) -> TestResult {
        let ended = Running::start(&mut self.inside("sh", &["-c", script]))?.wait()?;
        ended.ended_with(0).map(drop)
    }

    /// The file of the namespace's /run, as this process sees it.
    fn path(&self, file: &str) -> String {
        format!("/proc/{}/root{file}", self.holder.child.id())
    }

    /// Applies settings, and leaves the journal of a killed comparison, all with their old values in /run.
    /// Returns the number of pages before.
    fn with_a_kill(&self) -> Result<String, Box<dyn Error>> {
        let before = pages()?;
        self.hugewise(&["apply", "--pool", "2MiB=+10", "--thp-defrag", other_defrag()?])?.ended_with(0)?;
        let make = || self.inside(env!("CARGO_BIN_EXE_hugewise"), &comparison());
        killed(&make, &self.path(JOURNAL))?;
        Ok(before)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.shell("mount -o remount,rw,size=1m /run");
        let _ = self.hugewise(&["restore", "--force"]);
        let _ = self.holder.child.kill();
        let _ = self.holder.child.wait();
    }
}

fn pages() -> Result<String, Box<dyn Error>> {
    Ok(fs::read_to_string(NR)?.trim().to_owned())
}

fn defrag() -> Result<String, Box<dyn Error>> {
    Ok(fs::read_to_string(DEFRAG)?)
}

/// A valid value of `defrag` that is not set.
fn other_defrag() -> Result<&'static str, Box<dyn Error>> {
    Ok(if defrag()?.contains("[defer]") { "madvise" } else { "defer" })
}

fn on_a_full_run() -> TestResult {
    let (namespace, before) = (Namespace::new()?, defrag()?);
    let pages_before = namespace.with_a_kill()?;
    let fill =
        || namespace.shell("! dd if=/dev/zero of=/run/$$ bs=4k 2> /dev/null && ! echo text > /run/more");
    fill()?;
    let restored = namespace.hugewise(&["restore"])?.ended_with(0)?;
    says(&restored.stdout, &["was killed during: compare", "Restored: pool of 2MiB pages", "defrag"])?;
    assert_eq!((pages()?, defrag()?), (pages_before, before));
    let again = namespace.hugewise(&["restore"])?.ended_with(0)?;
    says(&again.stdout, &["Nothing to restore"])?;
    fill()?;
    // A command that would change settings cannot write its journal, and changes nothing.
    let refused = namespace.hugewise(&["apply", "--pool", "2MiB=+1"])?.ended_with(2)?;
    says(&refused.stderr, &["No space left on device", "no setting is changed"])
}

fn on_a_read_only_run() -> TestResult {
    let (namespace, before) = (Namespace::new()?, defrag()?);
    let pages_before = namespace.with_a_kill()?;
    namespace.shell("mount -o remount,ro /run")?;
    for _ in 0..2 {
        let restored = namespace.hugewise(&["restore"])?.ended_with(0)?;
        says(
            &restored.stdout,
            &["was killed during: compare", "Restored: pool of 2MiB", "their journal remains", "Read-only"],
        )?;
        assert_eq!((pages()?, defrag()?), (pages_before.clone(), before.clone()));
    }
    namespace.shell("mount -o remount,rw /run")?;
    namespace.hugewise(&["restore"])?.ended_with(0)?;
    says(&namespace.hugewise(&["restore"])?.ended_with(0)?.stdout, &["Nothing to restore"])
}

/// Restores all settings when dropped.
struct Undo;

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = run(&["restore", "--force"]);
    }
}

fn beside_foreign_changes() -> TestResult {
    let _undo = Undo;
    let before = pages()?;
    let foreign = (before.parse::<u64>()? + 3).to_string();
    for ends in [false, true] {
        let make = || hugewise(&comparison());
        if ends {
            let running = changed_the_pool(&make, JOURNAL)?;
            fs::write(NR, &foreign)?;
            running.signal("INT")?;
            let ended = running.wait()?;
            says(
                &ended.stderr,
                &[&format!("the pool of 2MiB pages is {foreign}: another program changed it")],
            )?;
            assert!(Path::new(APPLIED).exists() && !Path::new(JOURNAL).exists());
        } else {
            killed(&make, JOURNAL)?;
            fs::write(NR, &foreign)?;
        }
        for _ in 0..2 {
            let restored = run(&["restore"])?.ended_with(1)?;
            says(
                &restored.stdout,
                &["Skipped: the pool of 2MiB pages", "another program", "restore --force"],
            )?;
            assert_eq!(pages()?, foreign);
        }
        run(&["restore", "--force"])?.ended_with(0)?;
        assert_eq!(pages()?, before);
    }
    Ok(())
}

/// The system calls of `apply`: the journal with the old value is written, synced and renamed, and its folder
/// synced, before each write of the setting.
fn synced_before_written() -> TestResult {
    let _undo = Undo;
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("calls");
    let make = || {
        let apply = hugewise(&["apply", "--pool", "2MiB=+600"]);
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-s", "4096", "-e", "trace=write,fsync,rename", "-o"]).arg(&log);
        command.arg(apply.get_program()).args(apply.get_args());
        command
    };
    run_command(&make)?.ended_with(0)?;
    let calls = fs::read_to_string(&log)?;
    let kind = |line: &str| {
        let is = |call: &str, of: &str| line.contains(call) && line.contains(of);
        [
            ("draft written", is("write(", "/run/hugewise/journal.draft>")),
            ("draft synced", is("fsync(", "/run/hugewise/journal.draft>")),
            ("renamed", is("rename(", "\"/run/hugewise/journal.json\"")),
            ("folder synced", is("fsync(", "</run/hugewise>")),
            ("setting written", is("write(", "/nr_hugepages>")),
        ]
        .into_iter()
        .find_map(|(kind, is)| is.then_some(kind))
    };
    let (kinds, lines): (Vec<&str>, Vec<&str>) =
        calls.lines().filter_map(|line| Some((kind(line)?, line))).unzip();
    let writes: Vec<usize> = (0..kinds.len()).filter(|at| kinds[*at] == "setting written").collect();
    assert!(writes.len() >= 3, "600 pages are added in steps: {calls}");
    for at in writes {
        let first = at.saturating_sub(4);
        assert_eq!(
            kinds[first..at],
            ["draft written", "draft synced", "renamed", "folder synced"],
            "{calls}"
        );
        let value = lines[at].split('"').nth(1).ok_or("a write without a value")?;
        let is_recorded = lines[first].contains(&format!(r#"\"{value}\""#));
        assert!(is_recorded, "{value} is not in the journal when it is written: {calls}");
    }
    Ok(())
}

fn in_another_namespace() -> TestResult {
    let namespace = Namespace::new()?;
    let before = pages()?;
    let make = || namespace.inside(env!("CARGO_BIN_EXE_hugewise"), &comparison());
    let mut running = changed_the_pool(&make, &namespace.path(JOURNAL))?;
    let changed = pages()?;
    // While it runs, it holds the lock of the machine.
    for arguments in [&["apply", "--pool", "2MiB=+1"][..], &["restore"]] {
        let refused = Running::start(&mut hugewise(arguments))?.wait()?.ended_with(2)?;
        says(&refused.stderr, &["has locked the settings", "in another mount namespace"])?;
    }
    running.child.kill()?;
    running.wait()?;
    // Its journal remains where this /run does not show it, and is restored from here.
    let named = format!("in the mount namespace of process {}", namespace.holder.child.id());
    let refused = run(&["apply", "--pool", "2MiB=+1"])?.ended_with(2)?;
    says(&refused.stderr, &["compare", &named, "hugewise restore"])?;
    assert_ne!((changed, pages()?), (before.clone(), before.clone()));
    let restored = run(&["restore"])?.ended_with(0)?;
    says(&restored.stdout, &["was killed during: compare", &named, "Restored: pool of 2MiB pages"])?;
    for said in [&refused.stderr, &restored.stdout] {
        assert!(!said.contains("nsenter"), "advises to run a program of another namespace: {said}");
    }
    assert_eq!(pages()?, before);
    assert!(!Path::new(&namespace.path(JOURNAL)).exists());
    says(&namespace.hugewise(&["restore"])?.ended_with(0)?.stdout, &["Nothing to restore"])?;
    says(&run(&["restore"])?.ended_with(0)?.stdout, &["Nothing to restore"])
}
