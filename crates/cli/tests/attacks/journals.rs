//! Journals that are damaged, of another kind, or in a container; and files of other users where hugewise writes.

use std::{
    collections::BTreeSet,
    error::Error,
    ffi::OsString,
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    TestResult, Trial, attack,
    bounded::{AT_ONCE, CAGE, COMPARED, caged, within},
    counters::IN_PLACE,
    hostile::{Hostile, Place, USER},
    namespaces::journal,
    needs::Need::{MemoryGroup, Namespaces},
    reading::{each, orderly},
    settings::{APPLIED, JOURNAL, RECORDING},
    start::says,
};

const SECRET: &str = "SECRET-OF-ROOT";

pub fn trials() -> Vec<Trial> {
    vec![
        attack("journals: damaged ones have a way out that loses nothing", &[], damaged).representing(false),
        attack("journals: links, pipes, folders and files without end", &[MemoryGroup], of_another_kind)
            .representing(false),
        attack("journals: those of other users", &[], of_another_user),
        attack("journals: links and pipes in a container's /run", &[MemoryGroup, Namespaces], in_containers)
            .representing(false),
        attack("journals: those of root in a foreign user namespace", &[Namespaces], foreign),
        attack("outputs: files that another user has made", &[], outputs).representing(false),
        attack("outputs: a capture into a folder with links of another user", &[], capture)
            .representing(false),
    ]
}

/// A file of hugewise's own during a test. All that a test adds beside it is removed at the end.
struct Planted {
    folder: &'static Path,
    before: BTreeSet<OsString>,
}

impl Planted {
    fn new(file: &'static str) -> Result<Planted, Box<dyn Error>> {
        let folder = Path::new(file).parent().ok_or("no parent")?;
        fs::create_dir_all(folder)?;
        if Path::new(file).exists() {
            return Err(format!("{file} exists").into());
        }
        Ok(Planted { folder, before: names(folder) })
    }

    /// The files that are new.
    fn added(&self) -> Vec<PathBuf> {
        names(self.folder).difference(&self.before).map(|name| self.folder.join(name)).collect()
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        for path in self.added() {
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    }
}

fn names(folder: &Path) -> BTreeSet<OsString> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
}

/// The way out of a file that is not a journal: `restore` names it, and moves it away when it is asked to. Then commands
/// change settings again.
fn way_out(file: &str, planted: &Planted) -> TestResult {
    let restored = caged(CAGE, AT_ONCE, &["restore"])?;
    says(&format!("{}{}", restored.stdout, restored.stderr), &[file, "--set-aside"])?;
    assert!(fs::symlink_metadata(file).is_ok(), "{file} was removed: {restored:?}");
    let aside = caged(CAGE, AT_ONCE, &["restore", "--set-aside"])?;
    let kept = planted
        .added()
        .into_iter()
        .filter(|path| !["lock", "recording"].iter().any(|own| path.ends_with(own)));
    if fs::symlink_metadata(file).is_ok() || kept.count() != 1 {
        return Err(format!("it was not moved away: {aside:?}").into());
    }
    within(AT_ONCE, &["apply", "--khugepaged", "max_ptes_none=510"])?.ended_with(0)?;
    within(AT_ONCE, &["restore"])?.ended_with(0).map(drop)
}

fn damaged() -> TestResult {
    let texts = ["", "{\"boot_id\": \"", "no JSON", "[]", "\0\0\0\0\0\0\0\0"];
    each(
        [JOURNAL, RECORDING, APPLIED]
            .iter()
            .flat_map(|file| texts.iter().map(move |text| (*file, *text)))
            .map(|(file, text)| {
                let planted = Planted::new(file)?;
                fs::write(file, text)?;
                way_out(file, &planted).map_err(|error| format!("{file} with {text:?}: {error}"))?;
                let is_kept = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|found| found == text);
                if planted.added().iter().any(is_kept) {
                    Ok(())
                } else {
                    Err(format!("{text:?} is lost").into())
                }
            }),
    )
}

fn of_another_kind() -> TestResult {
    each(
        [JOURNAL, RECORDING, APPLIED]
            .iter()
            .flat_map(|file| IN_PLACE.iter().map(move |case| (*file, case)))
            .map(|(file, (what, make))| {
                let planted = Planted::new(file)?;
                make(Path::new(file))?;
                way_out(file, &planted).map_err(|error| format!("{file} is a {what}: {error}").into())
            }),
    )
}

fn of_another_user() -> TestResult {
    // Only root writes in its folder; a restored backup or a wrong chown may give its file to a user.
    let ptes = "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none";
    let before = fs::read_to_string(ptes)?;
    within(AT_ONCE, &["apply", "--khugepaged", "max_ptes_none=509"])?.ended_with(0)?;
    let kept = fs::read_to_string(APPLIED)?;
    fs::write(APPLIED, kept.replace(&format!("\"{}\"", before.trim()), "\"7\""))?;
    chown(APPLIED, Some(USER), Some(USER))?;
    let restored = within(AT_ONCE, &["restore"])?;
    let now = fs::read_to_string(ptes)?;
    fs::write(ptes, before.trim())?;
    let _ = fs::remove_file(APPLIED);
    if now.trim() != "7" {
        Ok(())
    } else {
        Err(format!("a journal of another user was restored: {restored:?}").into())
    }
}

/// Root in a mount namespace of its own, with an empty /run; then `script`.
fn container(words: &[&str], script: &str) -> Result<Hostile, Box<dyn Error>> {
    let script = format!(
        "set -e; mount -t tmpfs none /run; mkdir -p /run/hugewise/recording; {script}; echo ready; exec setpriv --pdeathsig KILL sleep 600"
    );
    Hostile::start(Command::new("unshare").args(words).args(["-m", "sh", "-c", &script]))
}

fn in_containers() -> TestResult {
    let scripts = [
        "ln -s /proc/self/pagemap /run/hugewise/journal.json",
        "ln -s /proc/kmsg /run/hugewise/journal.json",
        "mkfifo /run/hugewise/journal.json",
        "mkdir /run/hugewise/journal.json",
        "truncate -s 1T /run/hugewise/journal.json",
        "rm -r /run/hugewise; ln -s /proc/self/fd /run/hugewise",
        "mount --bind /dev/zero /run/hugewise 2> /dev/null || touch /run/hugewise/journal.json; mount --bind /dev/zero /run/hugewise/journal.json",
        "echo '{' > /run/hugewise/journal.json; ln -s journal.json /run/hugewise/applied.json",
    ];
    each(scripts.iter().map(|script| {
        let container = container(&[], script)?;
        for command in [&["apply", "--khugepaged", "max_ptes_none=510"][..], &["restore"]] {
            let ended = caged(CAGE, AT_ONCE, command).map_err(|error| format!("{script}: {error}"))?;
            // Root of a container in our user namespace may have left a journal there, which is then not restored.
            orderly(ended).map_err(|error| format!("{script}: {error}"))?;
        }
        drop(container);
        within(AT_ONCE, &["restore"])?.ended_with(0).map(drop)
    }))
}

fn foreign() -> TestResult {
    let write = format!("printf %s '{}' > /run/hugewise/journal.json", journal("compare")?);
    // Root of the machine as root of a user namespace: its files belong to root here, too.
    let _container = container(&["-U", "--map-root-user"], &write)?;
    for command in [&["apply", "--khugepaged", "max_ptes_none=510"][..], &["restore"]] {
        within(AT_ONCE, command)?.ended_with(0)?;
    }
    Ok(())
}

fn outputs() -> TestResult {
    let place = Place::new()?;
    let recording = place.text("recording");
    within(AT_ONCE, &["record", "-o", &recording, "--", "sh", "-c", "sleep 0.3", SECRET])?.ended_with(0)?;
    let log = place.text("gc.log");
    fs::write(&log, "[1.0s][info][gc] GC(0) Pause Young (Normal) (x) 20M->10M(64M) 3.000ms\n")?;
    let program = ["--", "sh", "-c", "sleep 0.2", SECRET];
    each(
        [
            (&["record", "-o"][..], &program[..]),
            (&["report", "--html"], &[&recording]),
            (&["run", "--backing", "thp", "--report"], &program),
            (&["compare", "--rounds", "1", "-b", "base", "--html"], &program),
        ]
        .iter()
        .map(|(before, after)| {
            // Made in advance, and kept open by its owner.
            let folder = place.of_user()?.display().to_string();
            let (file, read) = (format!("{folder}/output"), format!("{folder}/read"));
            let script = format!("umask 0; : > {file}; exec 3< {file}; echo ready; sleep 0.5; while :; do cat <&3 >> {read}; sleep 0.1; done");
            let mut command = Command::new("sh");
            let _owner = Hostile::start(command.args(["-c", &script]).uid(USER).gid(USER))?;
            let ended = within(COMPARED, &[&before[..], &[&file[..]], after].concat())?;
            std::thread::sleep(std::time::Duration::from_millis(500));
            let (found, stolen) = (fs::metadata(&file)?, fs::read(&read).unwrap_or_default());
            let is_private = found.permissions().mode() & 0o077 == 0 && found.uid() == 0;
            if !stolen.is_empty() || found.len() > 0 && !is_private {
                return Err(format!(
                    "{before:?}: {} bytes went to another user; mode {:o}, uid {}: {}",
                    stolen.len(),
                    found.permissions().mode(),
                    found.uid(),
                    ended.stderr
                )
                .into());
            }
            Ok(())
        }),
    )
}

fn capture() -> TestResult {
    let place = Place::new()?;
    let (folder, kept) = (place.of_user()?, place.path("kept"));
    fs::create_dir(&kept)?;
    fs::write(kept.join("meminfo"), "kept")?;
    symlink(&kept, folder.join("proc"))?;
    fs::create_dir(folder.join("sys"))?;
    symlink(&kept, folder.join("sys/kernel"))?;
    within(AT_ONCE, &["check", "--capture", &folder.display().to_string()])?;
    let files: Vec<_> = fs::read_dir(&kept)?.flatten().map(|entry| entry.file_name()).collect();
    let is_kept = fs::read_to_string(kept.join("meminfo"))? == "kept" && files.len() == 1;
    if is_kept { Ok(()) } else { Err(format!("a capture writes through links of a user: {files:?}").into()) }
}
