//! Machines without root, without a writable /sys or any /sys, without a JDK, without space for a report.

use std::{
    error::Error,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    needs::Need::{Namespaces, Pool, Root, Thp},
    start::{
        EndedProcess, INCONCLUSIVE, QUICK_RUN, covered, hugewise, reason_left_out, rounds, run, run_command,
        says,
    },
    trial,
};

/// User id of `nobody`.
pub const UNPRIVILEGED: u32 = 65534;

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Pool, Thp];
    let lacking = |name: &str, test: fn() -> TestResult| {
        trial(&format!("without {name}"), &[Root, Pool, Thp, Namespaces], test)
    };
    vec![
        trial("without root: backings that need no root are compared", &needs, rights),
        lacking("a writable /sys: backings that need no change are compared", writable_sys),
        lacking("a /sys: a clear answer", sys),
        lacking("a writable /run: backings that need no change are compared", writable_run),
        lacking("a JDK: the Java half is skipped", jdk),
        lacking("space for the report: the result is still printed", space),
    ]
}

/// A copy of the program, and a folder for temporary files, that all users can access.
pub fn accessible_copy() -> Result<(TempDir, PathBuf, PathBuf), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    mode(folder.path(), 0o755)?;
    let program = folder.path().join("hugewise");
    fs::copy(env!("CARGO_BIN_EXE_hugewise"), &program)?;
    mode(&program, 0o755)?;
    let temporary = folder.path().join("tmp");
    fs::create_dir(&temporary)?;
    mode(&temporary, 0o777)?;
    Ok((folder, program, temporary))
}

fn rights() -> TestResult {
    let (_folder, program, temporary) = accessible_copy()?;
    let unprivileged = |arguments: &[&str]| -> Result<EndedProcess, Box<dyn Error>> {
        let make = || {
            let mut command = Command::new(&program);
            command.args(arguments).env("TMPDIR", &temporary).env_remove("JAVA_HOME").current_dir("/");
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
            command
        };
        run_command(&make)
    };
    let small = [&QUICK_RUN[..], &["--json"]].concat();
    let comparison = unprivileged(&small)?.ended_with(INCONCLUSIVE)?.comparison()?;
    covered(&comparison, "thp", 0.95)?;
    rounds(&comparison, "base")?;
    says(reason_left_out(&comparison, "hugetlb")?, &["CAP_DAC_OVERRIDE", "nr_hugepages"])?;
    assert!(comparison.changes.is_empty(), "{:?}", comparison.changes);
    let named = unprivileged(&[&small[..], &["-b", "hugetlb"]].concat())?.ended_with(1)?;
    says(reason_left_out(&named.comparison()?, "hugetlb")?, &["CAP_DAC_OVERRIDE"])?;
    // It cannot restore, and must not report that there was nothing to restore.
    let restore = unprivileged(&["restore"])?;
    assert!(!restore.stderr.contains("panicked"), "{restore:#?}");
    let left: Vec<_> = fs::read_dir(&temporary)?.flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "left in the folder for temporary files: {left:?}");
    Ok(())
}

/// Runs the program after `mounts`, in a mount namespace of its own.
fn after(mounts: &str, arguments: &[&str]) -> Result<EndedProcess, Box<dyn Error>> {
    let make = || {
        let inner = hugewise(arguments);
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &format!("{mounts} && exec \"$@\""), "sh"]);
        command.arg(inner.get_program()).args(inner.get_args()).env_remove("JAVA_HOME");
        command
    };
    run_command(&make)
}

fn writable_sys() -> TestResult {
    let arguments = [&QUICK_RUN[..], &["--json"]].concat();
    let ran = after("mount -o remount,ro,bind /sys", &arguments)?.ended_with(INCONCLUSIVE)?;
    let comparison = ran.comparison()?;
    covered(&comparison, "thp", 0.95)?;
    rounds(&comparison, "base")?;
    says(reason_left_out(&comparison, "hugetlb")?, &["nr_hugepages", "Read-only file system"])
}

fn sys() -> TestResult {
    let arguments = [&QUICK_RUN[..], &["--json"]].concat();
    let comparison = after("mount -t tmpfs none /sys", &arguments)?.ended_with(0)?.comparison()?;
    rounds(&comparison, "base")?;
    // It is unknown whether the kernel supports them; the message must not deny it.
    for backing in ["thp", "hugetlb"] {
        says(reason_left_out(&comparison, backing)?, &["or /sys is not mounted"])?;
    }
    Ok(())
}

fn writable_run() -> TestResult {
    let arguments = [&QUICK_RUN[..], &["--json"]].concat();
    let ran = after("mount --bind /run /run && mount -o remount,ro,bind /run", &arguments)?
        .ended_with(INCONCLUSIVE)?;
    let comparison = ran.comparison()?;
    covered(&comparison, "thp", 0.95)?;
    says(reason_left_out(&comparison, "hugetlb")?, &["/run/hugewise", "Read-only file system"])
}

fn jdk() -> TestResult {
    let hidden = ["/usr/lib/jvm", "/usr/lib64/jvm", "/usr/java", "/usr/local", "/opt"];
    let hide: Vec<String> = hidden
        .iter()
        .filter(|folder| Path::new(folder).is_dir())
        .map(|folder| format!("mount -t tmpfs none {folder}"))
        .collect();
    let arguments = ["compare", "--json", "--bytes", "100000000", "--rounds", "1", "--backing", "thp"];
    let ran = after(&hide.join(" && "), &arguments)?.ended_with(INCONCLUSIVE)?;
    let comparison = ran.comparison()?;
    assert_eq!(comparison.cases.len(), 1, "{:#?}", comparison.cases);
    covered(&comparison, "thp", 0.95)?;
    says(&comparison.notes.join("\n"), &["the Java half was skipped: no JDK was found", "--java"])?;
    // Without a java, a java command line cannot be compared.
    let command = ["compare", "--rounds", "1", "--", "java", "-Xmx64m", "-version"];
    let ran = after(&hide.join(" && "), &command)?.ended_with(2)?;
    says(&ran.stderr, &["java", "No such file"])
}

fn space() -> TestResult {
    let folder = tempfile::tempdir()?;
    let here = folder.path().display().to_string();
    let full = format!(
        "mount -t tmpfs -o size=64k none {here} && dd if=/dev/zero of={here}/fill bs=4k count=15 2>/dev/null"
    );
    let report = format!("{here}/report.html");
    let ran = after(&full, &[&QUICK_RUN[..], &["-b", "thp", "--html", &report]].concat())?.ended_with(2)?;
    says(&ran.stdout, &["native", "thp"])?;
    says(&ran.stderr, &[&report, "No space left on device"])?;
    // An existing folder is not replaced.
    let ran = run(&[&QUICK_RUN[..], &["-b", "thp", "--html", &here]].concat())?.ended_with(2)?;
    says(&ran.stderr, &["it is a folder"])
}
