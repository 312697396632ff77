//! `restore` beside processes that want to delay it: every setting is restored, and it ends.

use std::{
    error::Error,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use hugewise_linux::{root, settings::Setting};

use crate::{
    TestResult, Trial,
    compiling::compile,
    killed_comparison,
    needs::Need::{Compiler, Namespaces, Pool, Root},
    settings::JOURNAL,
    skip,
    start::{QUICK_RUN, hugewise, run, run_command, says},
    trial,
};

/// A file system that never answers.
const HANGING: &str = include_str!("hanging.c");
/// Longest time of a command beside hostile processes. It needs some seconds; the machine may be busy.
const MAX_TIME: Duration = Duration::from_secs(60);
const NR: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Pool, Namespaces, Compiler];
    vec![
        trial("restore: a mount namespace that never answers delays nothing", &needs, namespaces_that_hang),
        trial("restore: environments that cannot be read delay no setting", &needs, environments_that_hang),
        trial("restore: journals of other user namespaces do not count", &needs, foreign_user_namespaces),
        trial("restore: damaged files are set aside, all others restored", &[Root, Pool], damaged),
    ]
}

/// A process of a test, which is killed at the end, with its children.
struct Hostile(Child);

impl Hostile {
    fn start(command: &mut Command) -> Result<Hostile, Box<dyn Error>> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut hostile = Hostile(child);
        let mut line = String::new();
        BufReader::new(hostile.0.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        if line.trim() == "ready" { Ok(hostile) } else { skip("FUSE or overlayfs does not work here") }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        // First what serves the file system: without it, each wait for an answer ends.
        let pid = self.0.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        for child in children.split_whitespace() {
            let _ = Command::new("sh").args(["-c", "kill -s KILL \"$0\"", child]).status();
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn hanging(mode: &str, folder: &Path, number: usize) -> Result<Vec<Hostile>, Box<dyn Error>> {
    let program = compile(folder, "hanging", HANGING)?;
    (0..number)
        .map(|at| {
            let folder = folder.join(at.to_string());
            fs::create_dir(&folder)?;
            Hostile::start(Command::new(&program).arg(mode).arg(&folder))
        })
        .collect()
}

/// Starts a comparison that needs a pool, and kills it when the pool was changed.
fn kill_a_comparison() -> TestResult {
    let comparison = [&QUICK_RUN[..], &["-b", "base,hugetlb"]].concat();
    killed_comparison::killed(&|| hugewise(&comparison), JOURNAL)
}

fn pages() -> Result<String, Box<dyn Error>> {
    Ok(fs::read_to_string(NR)?.trim().to_owned())
}

/// Restores all settings when dropped.
struct Undo;

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = run(&["restore", "--force", "--set-aside"]);
    }
}

fn ended_in_time(begin: Instant) -> TestResult {
    let elapsed = begin.elapsed();
    if elapsed < MAX_TIME { Ok(()) } else { Err(format!("it took {elapsed:?}").into()) }
}

fn namespaces_that_hang() -> TestResult {
    let (folder, _undo) = (tempfile::tempdir()?, Undo);
    let before = pages()?;
    kill_a_comparison()?;
    let hostile = hanging("overlay", folder.path(), 2)?;
    let begin = Instant::now();
    let restored = run(&["restore"])?.ended_with(0)?;
    ended_in_time(begin)?;
    says(&restored.stdout, &["Restored: pool of 2MiB pages", "Not looked into"])?;
    assert_eq!(pages()?, before);
    // The locks are free, and other commands work.
    run(&["apply", "--pool", "2MiB=+1"])?.ended_with(0)?;
    says(&run(&["restore"])?.ended_with(0)?.stdout, &["Restored: pool of 2MiB pages"])?;
    ended_in_time(begin)?;
    drop(hostile);
    Ok(())
}

fn environments_that_hang() -> TestResult {
    let (folder, _undo) = (tempfile::tempdir()?, Undo);
    let before = pages()?;
    let hostile = hanging("environ", folder.path(), 20)?;
    kill_a_comparison()?;
    let begin = Instant::now();
    // The settings are restored while it still waits for the processes.
    let mut running = hugewise(&["restore"]).stdout(Stdio::piped()).spawn()?;
    crate::start::wait_until("the pool is restored", || Ok(pages()? == before))?;
    ended_in_time(begin)?;
    let status = running.wait()?;
    ended_in_time(begin)?;
    assert!(status.success(), "{status}");
    let says_so = std::io::read_to_string(running.stdout.take().ok_or("no output")?)?;
    says(&says_so, &["Restored: pool of 2MiB pages", "did not answer"])?;
    drop(hostile);
    says(&run(&["restore"])?.ended_with(0)?.stdout, &["Nothing to restore"])
}

/// The root of a user namespace of its own is root of the machine here, so that its files belong to root, too.
fn foreign_user_namespaces() -> TestResult {
    let _undo = Undo;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let now = Setting::ThpDefrag.read(&root::Root::live())?;
    let journal = format!(
        r#"{{"boot_id": "{}", "run_id": "1", "owner": 1, "purpose": "forged",
            "entries": [{{"setting": "thp_defrag", "was": "{now}", "now": "{now}"}}]}}"#,
        boot.trim()
    );
    let script = "mount -t tmpfs none /run && mkdir -m 700 /run/hugewise && echo \"$0\" > /run/hugewise/journal.json \
                  && echo ready && exec sleep 3600";
    let forged = |user: &[&str]| {
        let mut command = Command::new("unshare");
        Hostile::start(command.args(user).args(["-m", "sh", "-c", script, &journal]))
    };
    let Ok(hostile) = forged(&["-Ur"]) else { return skip("user namespaces cannot be created") };
    run(&["apply", "--pool", "2MiB=+1"])?.ended_with(0)?;
    let restored = run(&["restore"])?.ended_with(0)?;
    assert!(!restored.stdout.contains("forged"), "{restored:#?}");
    drop(hostile);
    // Without one, it can be the journal of a container.
    let _hostile = forged(&[])?;
    let refused = run(&["apply", "--pool", "2MiB=+1"])?.ended_with(2)?;
    says(&refused.stderr, &["forged, in the mount namespace of process", "hugewise restore"])?;
    let restored = run(&["restore"])?.ended_with(0)?;
    says(&restored.stdout, &["forged, in the mount namespace"])?;
    says(&run(&["restore"])?.ended_with(0)?.stdout, &["Nothing to restore"])
}

fn damaged() -> TestResult {
    let _undo = Undo;
    let before = pages()?;
    kill_a_comparison()?;
    let text = fs::read_to_string(JOURNAL)?;
    fs::write(JOURNAL, &text[..text.len() / 2])?;
    let refused = run(&["apply", "--pool", "2MiB=+1"])?.ended_with(2)?;
    says(&refused.stderr, &["journal.json", "before its end", "restore --set-aside"])?;
    let reported = run(&["restore"])?.ended_with(1)?;
    says(&reported.stdout, &["Damaged: /run/hugewise/journal.json", "--set-aside"])?;
    let moved = run(&["restore", "--set-aside", "--json"])?.ended_with(1)?;
    let report: serde_json::Value = serde_json::from_str(&moved.stdout)?;
    let kept = report["damaged"][0]["set_aside"].as_str().ok_or("it was not moved")?.to_owned();
    assert_eq!(fs::read_to_string(&kept)?.len(), text.len() / 2);
    says(&run(&["restore"])?.ended_with(0)?.stdout, &["Nothing to restore"])?;
    // As the page says: put it back, whole.
    fs::write(JOURNAL, text)?;
    fs::remove_file(kept)?;
    run_command(&|| hugewise(&["restore"]))?.ended_with(0)?;
    assert_eq!(pages()?, before);
    Ok(())
}
