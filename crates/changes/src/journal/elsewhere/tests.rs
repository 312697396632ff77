//! Journals in other mount namespaces, which are folders of a test here.

use std::{error::Error, fs, os::unix::fs::symlink, path::PathBuf};

use hugewise_linux::{
    sys::file,
    units::{Bytes, PageSize},
};
use tempfile::TempDir;

use super::*;
use crate::journal::{
    DamagedFiles, ForeignChanges, Journal, RestoreOptions, Restored, restore, restore_with,
    tests::{TestResult, machine, pool},
};
use hugewise_linux::settings::Setting;

/// A machine with a second mount namespace, that of process 7.
struct Machines {
    _dir: TempDir,
    root: Root,
    /// The folder of journals here.
    state: PathBuf,
    /// The same folder in the other namespace.
    there: PathBuf,
}

impl Machines {
    fn new() -> Result<Machines, Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let root = machine(dir.path())?;
        fs::write(root.path("proc/sys/kernel/shmall"), "7\n")?;
        let state = dir.path().join("state");
        for (pid, namespace) in [("self", "mnt:[1]"), ("7", "mnt:[2]"), ("8", "mnt:[1]"), ("9", "mnt:[2]")] {
            fs::create_dir_all(root.path(format!("proc/{pid}/ns")))?;
            symlink(namespace, root.path(format!("proc/{pid}/ns/mnt")))?;
        }
        let there = root.path("proc/7/root").join(state.strip_prefix("/")?);
        fs::create_dir_all(&there)?;
        Ok(Machines { _dir: dir, root, state, there })
    }

    /// As after a SIGKILL, in the other namespace, of a command that set the pool from 3 to 100 pages and shmall from 7
    /// to 8; `edit` changes the text of the journal.
    fn killed(&self, edit: impl Fn(String) -> String) -> TestResult {
        let mut journal = Journal::open(&self.root, &self.there, "a test")?;
        journal.set(pool()?, "100")?;
        journal.set(Setting::ShmAll, "8")?;
        let text = fs::read_to_string(self.journal())?;
        drop(journal);
        fs::write(self.journal(), edit(text))?;
        fs::write(self.root.path(pool()?.path()), "100\n")?;
        Ok(fs::write(self.root.path("proc/sys/kernel/shmall"), "8\n")?)
    }

    fn journal(&self) -> PathBuf {
        self.there.join(Store::RECORD)
    }

    fn restore(&self, damaged: DamagedFiles) -> Result<Restored, Box<dyn Error>> {
        let options = RestoreOptions { damaged, ..RestoreOptions::of_settings(ForeignChanges::Leave) };
        Ok(restore_with(&self.root, &self.state, &options)?)
    }

    fn values(&self) -> Result<[String; 2], Box<dyn Error>> {
        Ok([pool()?.read(&self.root)?, Setting::ShmAll.read(&self.root)?])
    }
}

#[test]
fn it_is_restored_from_outside() -> TestResult {
    let of = Machines::new()?;
    of.killed(|text| text)?;
    let refused = Journal::open(&of.root, &of.state, "next").err().ok_or("opened beside another journal")?;
    assert!(refused.is_of_another(), "{refused}");
    let said = refused.to_string();
    assert!(
        said.contains("a test, in the mount namespace of process 7") && !said.contains("nsenter"),
        "{said}"
    );
    let restored = of.restore(DamagedFiles::Keep)?;
    assert_eq!((restored.settings.len(), restored.elsewhere), (2, None));
    assert_eq!(restored.purpose.as_deref(), Some("a test, in the mount namespace of process 7"));
    assert_eq!(of.values()?, ["3", "7"]);
    assert!(!of.journal().exists(), "it would be restored again");
    assert_eq!(restore(&of.root, &of.state, ForeignChanges::Leave)?, Restored::default());
    assert!(Journal::open(&of.root, &of.state, "next").is_ok());
    Ok(())
}

#[test]
fn changes_of_apply_are_restored_after_those_of_a_killed_command() -> TestResult {
    let of = Machines::new()?;
    let mut journal = Journal::open(&of.root, &of.there, "apply")?;
    journal.set(pool()?, "50")?;
    journal.keep()?;
    fs::write(of.root.path("proc/sys/kernel/random/uuid"), "another\n")?;
    of.killed(|text| text)?;
    let restored = of.restore(DamagedFiles::Keep)?;
    assert_eq!((restored.failed, restored.elsewhere), (Vec::new(), None));
    assert_eq!(of.values()?, ["3", "7"]);
    assert!(!of.journal().exists() && !of.there.join(Store::APPLIED).exists());
    Ok(())
}

#[test]
fn a_holder_that_runs_is_left_alone() -> TestResult {
    let of = Machines::new()?;
    of.killed(|text| text)?;
    let lock = file::open_private(&of.there.join(Store::LOCK))?;
    assert!(file::try_lock(&lock)?);
    let refused = Journal::open(&of.root, &of.state, "next").err().ok_or("opened")?;
    assert!(matches!(refused, JournalError::Busy(_)), "{refused}");
    let restored = of.restore(DamagedFiles::Keep)?;
    assert!(restored.elsewhere.is_some_and(|left| left.contains("which runs")));
    assert_eq!(of.values()?, ["100", "8"]);
    drop(lock);
    assert_eq!(of.restore(DamagedFiles::Keep)?.settings.len(), 2);
    Ok(())
}

/// The root of a container can write any journal. None of its values may take memory from the machine, or be one that
/// the kernel does not offer; its other settings are restored.
#[test]
fn its_values_are_checked() -> TestResult {
    for (was, reason) in
        [("200", "would grow to 200"), ("3 ", "not valid"), ("-1", "not valid"), ("x", "not valid")]
    {
        let of = Machines::new()?;
        of.killed(|text| text.replace("\"was\": \"3\"", &format!("\"was\": \"{was}\"")))?;
        for _ in 0..2 {
            let restored = of.restore(DamagedFiles::Keep)?;
            let left = restored.elsewhere.ok_or(was)?;
            assert!(left.contains(reason), "{was}: {left}");
            assert_eq!(of.values()?, ["100", "7"], "{was}");
        }
        assert!(of.restore(DamagedFiles::SetAside)?.elsewhere.is_some());
        assert!(!of.journal().exists() && fs::read_dir(&of.there)?.count() >= 1);
        assert_eq!(restore(&of.root, &of.state, ForeignChanges::Leave)?, Restored::default());
    }
    let of = Machines::new()?;
    // Without the value that it left, another program may have set it.
    of.killed(|text| text.replacen("\"now\": \"100\"", "\"other\": \"100\"", 1))?;
    assert!(of.restore(DamagedFiles::Keep)?.elsewhere.is_some_and(|left| left.contains("not in it")));
    assert_eq!(of.values()?, ["100", "7"]);
    let of = Machines::new()?;
    // Another program has changed it since.
    of.killed(|text| text)?;
    fs::write(of.root.path(pool()?.path()), "70\n")?;
    assert!(of.restore(DamagedFiles::Keep)?.elsewhere.is_some_and(|left| left.contains("70")));
    assert_eq!(of.values()?, ["70", "7"]);
    Ok(())
}

#[test]
fn what_is_no_journal_of_root_is_ignored() -> TestResult {
    type Change = fn(&Machines) -> std::io::Result<()>;
    let changes: [(&str, Change); 7] = [
        ("a link", |of| {
            fs::rename(of.journal(), of.there.join("moved"))?;
            symlink("moved", of.journal())
        }),
        ("a folder", |of| {
            fs::remove_file(of.journal())?;
            fs::create_dir(of.journal())
        }),
        ("of an earlier boot", |of| {
            fs::write(of.journal(), fs::read_to_string(of.journal())?.replace("boot-1", "boot-0"))
        }),
        ("too long", |of| fs::File::options().write(true).open(of.journal())?.set_len(2 << 20)),
        ("in a folder of all", |of| {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(&of.there, fs::Permissions::from_mode(0o777))
        }),
        ("no JSON", |of| fs::write(of.journal(), "{\"boot_id\": \"boot-1\"")),
        ("in a folder that is a link", |of| {
            fs::rename(&of.there, of.there.with_extension("moved"))?;
            symlink(of.there.with_extension("moved"), &of.there)
        }),
    ];
    for (what, change) in changes {
        let of = Machines::new()?;
        of.killed(|text| text)?;
        change(&of)?;
        let restored = restore(&of.root, &of.state, ForeignChanges::Leave)?;
        assert_eq!(restored, Restored::default(), "{what}");
        assert_eq!(of.values()?, ["100", "8"], "{what}");
        assert!(Journal::open(&of.root, &of.state, "next").is_ok(), "{what}");
    }
    Ok(())
}

#[test]
fn its_purpose_is_shortened_and_cannot_control_a_terminal() -> TestResult {
    let of = Machines::new()?;
    let purpose = format!("\\u001b]0;x\\u0007\\u202e{}", "long ".repeat(1000));
    of.killed(|text| text.replace("a test", &purpose))?;
    let said = of.restore(DamagedFiles::Keep)?.purpose.ok_or("no purpose")?;
    assert!(said.chars().count() < 200 && !said.chars().any(char::is_control), "{said}");
    assert!(said.starts_with('\u{fffd}') && !said.contains('\u{202e}'), "{said}");
    Ok(())
}

/// Pools of other sizes do not exist, and are not written.
#[test]
fn settings_that_the_machine_lacks_are_reported() -> TestResult {
    let of = Machines::new()?;
    let other = PageSize::new(Bytes(1 << 30))?.bytes().0.to_string();
    of.killed(|text| text.replace("2097152", &other))?;
    let left = of.restore(DamagedFiles::Keep)?.elsewhere.ok_or("restored")?;
    assert!(left.contains("1GiB"), "{left}");
    assert_eq!(of.values()?, ["100", "7"]);
    Ok(())
}
