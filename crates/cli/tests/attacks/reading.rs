//! What a process or a captured tree shapes is read with a limit, and without waiting.

use std::{
    fs::{self, File},
    os::unix::fs::{FileTypeExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
};

use crate::{
    TestResult, Trial, attack,
    bounded::{AT_ONCE, CAGE, caged, within},
    hostile::Place,
    killed_comparison::{comparison, killed},
    needs::Need::{MemoryGroup, Pool, Thp},
    settings::JOURNAL,
    start::{EndedProcess, hugewise, says},
};

/// Length of a file in /proc that is larger than the memory of any machine, in bytes.
pub const ENDLESS: &str = "17592186044416";
/// Content of a file that only root may read.
pub const SECRET: &str = "SECRET-OF-ROOT";
pub const NR: &str = "/proc/sys/vm/nr_hugepages";

pub fn trials() -> Vec<Trial> {
    vec![
        attack("reading: restore beside an endless environment", &[MemoryGroup, Pool], environment),
        attack("reading: an endless command line", &[MemoryGroup, Thp], command_line),
        attack("reading: a tree with links to files of this machine", &[MemoryGroup], tree_of_links)
            .representing(false),
        attack("reading: a plan without end", &[MemoryGroup], plan_without_end),
    ]
}

fn environment() -> TestResult {
    let place = Place::new()?;
    let before = fs::read_to_string(NR)?;
    killed(&|| hugewise(&comparison()), JOURNAL)?;
    let _hostile = place.hostile("image", &["environ", ENDLESS])?;
    caged(CAGE, AT_ONCE, &["restore"])?.ended_with(0)?;
    assert_eq!(fs::read_to_string(NR)?, before);
    Ok(())
}

/// The commands that read a process, without changing it.
pub fn observing<'a>(pid: &'a str, recording: &'a str) -> [Vec<&'a str>; 7] {
    [
        vec!["inspect", "--all"],
        vec!["inspect", pid],
        vec!["collapse", "--dry-run", pid],
        vec!["split", "--dry-run", pid],
        vec!["compare", "--live", pid, "--dry-run"],
        vec!["record", "--seconds", "1", "-o", recording, pid],
        vec!["plan", "--pid", pid],
    ]
}

fn command_line() -> TestResult {
    let place = Place::new()?;
    let hostile = place.hostile("image", &["cmdline", ENDLESS])?;
    let (pid, recording) = (hostile.pid(), place.text("recording"));
    each(
        observing(&pid, &recording).iter().map(|arguments| caged(CAGE, AT_ONCE, arguments).and_then(orderly)),
    )
}

/// A result, or an error that the program reports itself.
pub fn orderly(ended: EndedProcess) -> TestResult {
    match ended.status.code() {
        Some(0..=3) if !ended.stderr.contains("panicked") => Ok(()),
        _ => Err(format!("{ended:#?}").into()),
    }
}

/// All failures in one.
pub fn each(results: impl Iterator<Item = TestResult>) -> TestResult {
    let errors: Vec<String> = results.filter_map(Result::err).map(|error| error.to_string()).collect();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n").into()) }
}

/// A captured tree, in which `file` is replaced by what `make` makes at its path.
fn tree(
    place: &Place,
    file: &str,
    make: &dyn Fn(&Path) -> TestResult,
) -> Result<String, Box<dyn std::error::Error>> {
    let tree = place.text("tree");
    if !Path::new(&tree).exists() {
        within(AT_ONCE, &["check", "--capture", &tree])?;
    }
    let path = Path::new(&tree).join(file);
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    let _ = fs::remove_file(&path);
    make(&path)?;
    Ok(tree)
}

fn tree_of_links() -> TestResult {
    let place = Place::new()?;
    let secret = place.path("secret");
    fs::write(&secret, SECRET)?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    let secret = secret.display().to_string();
    let relative = format!("{}{}", "../".repeat(20), &secret[1..]);
    let through_proc = format!("/proc/self/root{secret}");
    let targets = ["/proc/self/pagemap", "/proc/kmsg", "/dev/zero", &secret, &relative, &through_proc];
    let files = ["proc/meminfo", "sys/kernel/mm/transparent_hugepage/enabled", "proc/self/cgroup"];
    let cases = files.iter().flat_map(|file| targets.iter().map(move |target| (*file, *target)));
    each(cases.map(|(file, target)| {
        let tree = tree(&place, file, &|path| Ok(symlink(target, path)?))?;
        for arguments in [&["check", "--root", &tree][..], &["check", "--json", "--root", &tree]] {
            let ended = caged(CAGE, AT_ONCE, arguments)?;
            let said = format!("{}{}", ended.stdout, ended.stderr);
            if said.contains(SECRET) {
                return Err(
                    format!("{file} -> {target}: a file outside of the tree was shown: {said}").into()
                );
            }
            orderly(ended)?;
        }
        tree_restored(&tree, file)
    }))
}

fn tree_restored(tree: &str, file: &str) -> TestResult {
    let path = Path::new(tree).join(file);
    fs::remove_file(&path)?;
    Ok(fs::write(path, "")?)
}

fn plan_without_end() -> TestResult {
    let place = Place::new()?;
    let (sparse, pipe) = (place.text("sparse"), place.text("pipe"));
    File::create(&sparse)?.set_len(1 << 40)?;
    Command::new("mkfifo").arg(&pipe).status()?;
    assert!(fs::metadata(&pipe)?.file_type().is_fifo());
    let endless = format!("{{\"schema\": \"hugewise.plan/2\", \"x\": \"{}", "x".repeat(17 << 20));
    fs::write(place.path("long"), endless)?;
    each(["/dev/zero", &sparse, &place.text("long")].iter().map(|file| {
        let ended = caged(CAGE, AT_ONCE, &["apply", "--dry-run", "--plan", file])?.ended_with(2)?;
        says(&ended.stderr, &[file])
    }))
}
