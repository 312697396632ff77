//! Settings that another program changes while a command holds the journal, or after its death.

use std::fs;

use super::{
    tests::{TestResult, machine, pool},
    *,
};

const LEAVE: ForeignChanges = ForeignChanges::Leave;

/// The text of the setting, as another program writes it.
fn write_pool(root: &Root, pages: &str) -> TestResult {
    Ok(fs::write(root.path(pool()?.path()), pages)?)
}

/// As after a SIGKILL of a command that set the pool from 3 to 100 pages; `edit` changes the journal.
fn killed(root: &Root, state: &Path, edit: impl Fn(&mut Record)) -> TestResult {
    let mut journal = Journal::open(root, state, "a test")?;
    journal.set(pool()?, "100")?;
    let mut record = journal.record.clone();
    drop(journal);
    edit(&mut record);
    fs::write(state.join(Store::RECORD), serde_json::to_vec(&record)?)?;
    write_pool(root, "100\n")
}

fn reports(restored: &Restored) -> Vec<(&str, Option<&str>, &str)> {
    let since = restored.changed_since.iter();
    since.map(|s| (s.kept.entry.was.as_str(), s.kept.now.as_deref(), s.reads.as_str())).collect()
}

#[test]
fn a_command_that_ends_leaves_foreign_changes() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    for dropped in [false, true] {
        write_pool(&root, "3\n")?;
        let mut journal = Journal::open(&root, &state, "a test")?;
        journal.set(pool()?, "100")?;
        write_pool(&root, "70\n")?;
        match dropped {
            true => drop(journal),
            false => assert_eq!(reports(&journal.close()), [("3", Some("100"), "70")]),
        }
        assert_eq!(pool()?.read(&root)?, "70");
        assert!(unfinished(&state).is_none(), "other commands need not wait");
        assert_eq!(reports(&restore(&root, &state, LEAVE)?), [("3", Some("100"), "70")]);
        assert_eq!(pool()?.read(&root)?, "70");
        assert_eq!(restore(&root, &state, ForeignChanges::Overwrite)?.undone.len(), 1);
        assert_eq!(pool()?.read(&root)?, "3");
    }
    Ok(())
}

#[test]
fn restore_after_a_kill_leaves_foreign_changes() -> TestResult {
    for force in [false, true] {
        let dir = tempfile::tempdir()?;
        let root = machine(dir.path())?;
        let state = dir.path().join("state");
        killed(&root, &state, |_| {})?;
        write_pool(&root, "70\n")?;
        if !force {
            let restored = restore(&root, &state, LEAVE)?;
            assert_eq!((reports(&restored), restored.settings.len()), (vec![("3", Some("100"), "70")], 0));
            assert_eq!(pool()?.read(&root)?, "70");
        }
        let restored = restore(&root, &state, ForeignChanges::Overwrite)?;
        assert_eq!(restored.settings.len() + restored.undone.len(), 1);
        assert_eq!(pool()?.read(&root)?, "3");
        assert_eq!(restore(&root, &state, LEAVE)?, Restored::default());
    }
    Ok(())
}

#[test]
fn a_change_cut_off_by_a_kill_is_recognised() -> TestResult {
    // The pool grew from 60 to 100 when the command was killed.
    for (reads, ours) in
        [("3", true), ("60", true), ("75", true), ("100", true), ("59", false), ("101", false)]
    {
        let dir = tempfile::tempdir()?;
        let root = machine(dir.path())?;
        let state = dir.path().join("state");
        killed(&root, &state, |record| {
            for change in &mut record.entries {
                change.from = Some("60".to_owned());
            }
        })?;
        write_pool(&root, reads)?;
        restore(&root, &state, LEAVE)?;
        assert_eq!(pool()?.read(&root)?, if ours { "3" } else { reads });
    }
    Ok(())
}

#[test]
fn the_journal_holds_the_new_value_before_it_is_written() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    let mut journal = Journal::open(&root, &state, "a test")?;
    let saved = || -> Result<Vec<_>, Box<dyn std::error::Error>> {
        let record: Record = serde_json::from_slice(&fs::read(state.join(Store::RECORD))?)?;
        Ok(record.entries.into_iter().map(|change| (change.from, change.now)).collect())
    };
    // The kernel refuses the value, so the write fails after the journal was saved.
    let file = root.path(pool()?.path());
    fs::remove_file(&file)?;
    fs::create_dir(&file)?;
    assert!(journal.set(pool()?, "50").is_err(), "it could not even be read");
    assert_eq!(saved()?, []);
    fs::remove_dir(&file)?;
    write_pool(&root, "3")?;
    journal.set(pool()?, "50")?;
    assert_eq!(saved()?, [(None, Some("50".to_owned()))]);
    journal.note_change(pool()?, &[pool()?], "80")?;
    journal.store.save(&journal.record)?;
    assert_eq!(saved()?, [(Some("50".to_owned()), Some("80".to_owned()))]);
    Ok(())
}

#[test]
fn a_command_does_not_overwrite_a_foreign_value() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let mut journal = Journal::open(&root, &dir.path().join("state"), "a test")?;
    journal.set(pool()?, "100")?;
    write_pool(&root, "70\n")?;
    let refused = journal.set(pool()?, "200").err().ok_or("overwritten")?;
    assert!(refused.to_string().contains("changed from 100 to 70"), "{refused}");
    assert_eq!(reports(&journal.close()), [("3", Some("100"), "70")]);
    assert_eq!(pool()?.read(&root)?, "70");
    Ok(())
}

#[test]
fn a_journal_that_cannot_be_removed_is_restored_again() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    let mut journal = Journal::open(&root, &state, "apply")?;
    journal.set(pool()?, "10")?;
    journal.keep()?;
    fs::write(root.path("proc/sys/kernel/random/uuid"), "another\n")?;
    killed(&root, &state, |_| {})?;
    let left = [Store::RECORD, Store::APPLIED].map(|name| state.join(name));
    let text = [fs::read(&left[0])?, fs::read(&left[1])?];
    for _ in 0..2 {
        let restored = restore(&root, &state, LEAVE)?;
        assert_eq!((reports(&restored), restored.failed.len()), (vec![], 0));
        assert_eq!(pool()?.read(&root)?, "3");
        // As on a read-only file system.
        for (file, text) in left.iter().zip(&text) {
            fs::write(file, text)?;
        }
    }
    Ok(())
}

#[test]
fn a_journal_of_an_earlier_version_is_restored() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    killed(&root, &state, |record| record.entries.iter_mut().for_each(|change| change.now = None))?;
    write_pool(&root, "70\n")?;
    assert_eq!(restore(&root, &state, LEAVE)?.settings.len(), 1);
    assert_eq!(pool()?.read(&root)?, "3");
    Ok(())
}
