//! The journal on machines made of plain files.

use std::{error::Error, fs};

use hugewise_linux::units::{Bytes, PageSize};

use super::*;

pub(super) type TestResult = Result<(), Box<dyn Error>>;

/// A machine with a pool of three 2 MiB pages.
pub(super) fn machine(dir: &Path) -> Result<Root, Box<dyn Error>> {
    let files = [
        ("proc/sys/kernel/random/boot_id", "boot-1\n"),
        ("proc/sys/kernel/random/uuid", "4f2a-77\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "0\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages", "0\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages", "0\n"),
    ];
    for (path, text) in files {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().ok_or("no parent")?)?;
        fs::write(path, text)?;
    }
    Ok(Root::at(dir))
}

pub(super) fn pool() -> Result<Setting, Box<dyn Error>> {
    Ok(Setting::Pool { page_size: PageSize::new(Bytes(2 << 20))?, node: None })
}

#[test]
fn a_half_written_journal_vanishes() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    drop(Journal::open(&root, &state, "test")?);
    fs::write(state.join(Store::DRAFT), "{")?;
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?, Restored::default());
    assert!(!state.join(Store::DRAFT).exists());
    Ok(())
}

#[test]
fn what_was_changed_is_put_back_in_reverse() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    fs::write(root.path("proc/sys/kernel/shmall"), "7\n")?;
    let mut journal = Journal::open(&root, &dir.path().join("state"), "a test")?;
    assert_eq!(journal.set(pool()?, "100")?, "100");
    assert_eq!(journal.set(Setting::ShmAll, "8")?, "8");
    assert_eq!(journal.set(pool()?, "200")?, "200");
    assert_eq!(journal.entries().count(), 2, "the value before the first change is restored");
    let restored = journal.close();
    assert_eq!(restored.failed, []);
    let order: Vec<_> = restored.settings.iter().map(|entry| entry.setting).collect();
    assert_eq!(order, [Setting::ShmAll, pool()?]);
    assert_eq!(pool()?.read(&root)?, "3");
    assert!(!dir.path().join("state/journal.json").exists());
    Ok(())
}

#[test]
fn a_dropped_journal_puts_back_too() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let mut journal = Journal::open(&root, &dir.path().join("state"), "a test")?;
    let scratch = journal.scratch();
    fs::write(scratch.join("gc.log"), "text")?;
    journal.set(pool()?, "100")?;
    drop(journal);
    assert_eq!(pool()?.read(&root)?, "3");
    assert!(!scratch.exists());
    Ok(())
}

/// As after a SIGKILL: the record is on disk, and the lock is free.
fn killed(root: &Root, state: &Path) -> TestResult {
    let mut journal = Journal::open(root, state, "a test")?;
    journal.set(pool()?, "100")?;
    let record = fs::read(state.join("journal.json"))?;
    drop(journal);
    fs::write(state.join("journal.json"), record)?;
    fs::write(root.path(pool()?.path()), "100\n")?;
    Ok(())
}

#[test]
fn after_a_kill_open_is_refused_and_restore_is_repeatable() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    killed(&root, &state)?;
    assert!(unfinished(&state).is_some());
    let refused =
        Journal::open(&root, &state, "the next").err().ok_or("opened over an unfinished journal")?;
    assert!(refused.to_string().contains("hugewise restore"), "{refused}");
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?.settings.len(), 1);
    assert_eq!(pool()?.read(&root)?, "3");
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?, Restored::default());
    Ok(())
}

#[test]
fn after_a_reboot_nothing_is_written() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    killed(&root, &state)?;
    fs::write(root.path("proc/sys/kernel/random/boot_id"), "boot-2\n")?;
    assert!(restore(&root, &state, ForeignChanges::Leave)?.rebooted);
    assert_eq!(pool()?.read(&root)?, "100");
    assert!(unfinished(&state).is_none());
    Ok(())
}

#[test]
fn surplus_pages_of_others_are_not_made_a_part_of_the_pool() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    // Three pages, one of them surplus: the pool's size is 2.
    fs::write(root.path("sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages"), "1\n")?;
    let mut journal = Journal::open(&root, &dir.path().join("state"), "a test")?;
    journal.set(pool()?, "100")?;
    let entries: Vec<_> = journal.entries().map(|entry| (entry.was.as_str(), entry.surplus)).collect();
    assert_eq!(entries, [("2", 1)]);
    std::mem::forget(journal); // Plain files cannot turn pages into surplus pages, so a restore would fail.
    Ok(())
}

#[test]
fn only_one_process_holds_the_journal() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    let _held = Journal::open(&root, &state, "the first")?;
    let refused = Journal::open(&root, &state, "the second").err().ok_or("two holders")?;
    assert!(refused.to_string().contains("the first"), "{refused}");
    assert!(restore(&root, &state, ForeignChanges::Leave).is_err());
    Ok(())
}

#[test]
fn a_setting_that_cannot_be_written_back_is_kept_in_the_journal() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    killed(&root, &state)?;
    fs::remove_file(root.path(pool()?.path()))?;
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?.failed.len(), 1);
    assert!(unfinished(&state).is_some());
    Ok(())
}

#[test]
fn a_pool_over_several_nodes_is_put_back_node_by_node() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    for (node, pages) in [(0, "2"), (1, "1")] {
        let part = Setting::Pool { page_size: PageSize::new(Bytes(2 << 20))?, node: Some(node) };
        let folder =
            root.path(hugewise_linux::hugepages::pools::folder(PageSize::new(Bytes(2 << 20))?, Some(node)));
        fs::create_dir_all(&folder)?;
        for (file, pages) in [("nr_hugepages", pages), ("free_hugepages", pages), ("surplus_hugepages", "0")]
        {
            fs::write(folder.join(file), pages)?;
        }
        assert!(part.read(&root).is_ok());
    }
    let mut journal = Journal::open(&root, &dir.path().join("state"), "a test")?;
    journal.set(pool()?, "100")?;
    let was: Vec<_> = journal.entries().map(|entry| entry.was.clone()).collect();
    assert_eq!(was, ["2", "1"]);
    Ok(())
}

#[test]
fn a_folder_that_others_may_write_to_is_refused() -> TestResult {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    fs::create_dir(&state)?;
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777))?;
    assert!(Journal::open(&root, &state, "a test").is_err());
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), &link)?;
    assert!(Journal::open(&root, &link, "a test").is_err());
    Ok(())
}

/// Sets the run id of the next journal to `id`.
fn next_run(root: &Root, id: &str) -> TestResult {
    Ok(fs::write(root.path("proc/sys/kernel/random/uuid"), id)?)
}

/// Applies and keeps a pool of `pages`.
fn apply(root: &Root, state: &Path, id: &str, pages: &str) -> TestResult {
    next_run(root, id)?;
    let mut journal = Journal::open(root, state, "apply")?;
    journal.set(pool()?, pages)?;
    Ok(journal.keep()?)
}

#[test]
fn what_was_kept_stays_until_it_is_undone() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    apply(&root, &state, "1", "100")?;
    apply(&root, &state, "2", "50")?;
    assert!(unfinished(&state).is_none(), "the journal is finished");
    // Another command changes the pool and restores the applied value.
    next_run(&root, "3")?;
    let mut journal = Journal::open(&root, &state, "compare")?;
    journal.set(pool()?, "70")?;
    assert_eq!(journal.close().failed, []);
    assert_eq!(pool()?.read(&root)?, "50");
    let restored = restore(&root, &state, ForeignChanges::Leave)?;
    assert_eq!((restored.undone.len(), restored.purpose), (1, None));
    assert_eq!(pool()?.read(&root)?, "3", "the value before the first apply");
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?, Restored::default());
    Ok(())
}

#[test]
fn an_apply_of_the_original_value_leaves_nothing_to_undo() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    apply(&root, &state, "1", "100")?;
    apply(&root, &state, "2", "3")?;
    assert!(!state.join(Store::APPLIED).exists());
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?, Restored::default());
    Ok(())
}

/// Every state on disk that a SIGKILL can leave during [`Journal::keep`].
#[test]
fn a_kill_at_any_moment_of_the_move_loses_nothing() -> TestResult {
    for before in [None, Some("20")] {
        for moment in ["draft", "moved", "scratch gone"] {
            let dir = tempfile::tempdir()?;
            let root = machine(dir.path())?;
            let state = dir.path().join("state");
            if let Some(pages) = before {
                apply(&root, &state, "first", pages)?;
            }
            let earlier = fs::read(state.join(Store::APPLIED)).ok();
            next_run(&root, "second")?;
            let mut journal = Journal::open(&root, &state, "apply")?;
            journal.set(pool()?, "100")?;
            let record = fs::read(state.join(Store::RECORD))?;
            let scratch = journal.scratch();
            journal.keep()?;
            fs::write(state.join(Store::RECORD), record)?;
            match (moment, earlier) {
                // Written, not yet renamed.
                ("draft", Some(earlier)) => {
                    fs::rename(state.join(Store::APPLIED), state.join(Store::DRAFT))?;
                    fs::write(state.join(Store::APPLIED), earlier)?;
                }
                ("draft", None) => fs::rename(state.join(Store::APPLIED), state.join(Store::DRAFT))?,
                ("moved", _) => fs::create_dir(&scratch)?,
                _ => {}
            }
            let what = format!("{before:?}, {moment}");
            assert_eq!(unfinished(&state).is_some(), moment == "draft", "{what}");
            let restored = restore(&root, &state, ForeignChanges::Leave)?;
            assert_eq!((restored.failed, restored.changed_since), (vec![], vec![]), "{what}");
            assert_eq!(pool()?.read(&root)?, "3", "{what}");
            let mut left: Vec<_> = fs::read_dir(&state)?.flatten().map(|entry| entry.file_name()).collect();
            left.retain(|name| name != "lock");
            assert!(left.is_empty(), "{what}: {left:?}");
        }
    }
    Ok(())
}

#[test]
fn foreign_changes_are_skipped_unless_forced() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    apply(&root, &state, "1", "100")?;
    fs::write(root.path(pool()?.path()), "70\n")?;
    for _ in 0..2 {
        let restored = restore(&root, &state, ForeignChanges::Leave)?;
        let [since] = &restored.changed_since[..] else { return Err("not seen".into()) };
        assert_eq!(
            (since.kept.entry.was.as_str(), since.kept.now.as_deref(), since.reads.as_str()),
            ("3", Some("100"), "70")
        );
        assert_eq!(pool()?.read(&root)?, "70");
    }
    assert_eq!(restore(&root, &state, ForeignChanges::Overwrite)?.undone.len(), 1);
    assert_eq!(pool()?.read(&root)?, "3");
    assert!(!state.join(Store::APPLIED).exists());
    Ok(())
}

#[test]
fn an_interrupted_undo_is_resumed() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    apply(&root, &state, "1", "100")?;
    let text = fs::read_to_string(state.join(Store::APPLIED))?;
    // The kernel released some pages before the process was killed.
    let restoring = text.replace("\"now\": \"100\"", "\"now\": \"3\", \"from\": \"100\"");
    assert_ne!(restoring, text);
    fs::write(state.join(Store::APPLIED), restoring)?;
    fs::write(root.path(pool()?.path()), "41\n")?;
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?.undone.len(), 1);
    assert_eq!(pool()?.read(&root)?, "3");
    Ok(())
}

#[test]
fn settings_applied_before_a_reboot_are_not_restored() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    apply(&root, &state, "1", "100")?;
    fs::write(root.path("proc/sys/kernel/random/boot_id"), "boot-2\n")?;
    // The pool of the new boot is restored.
    fs::write(root.path(pool()?.path()), "8\n")?;
    apply(&root, &state, "2", "60")?;
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?.undone.len(), 1);
    assert_eq!(pool()?.read(&root)?, "8");
    apply(&root, &state, "3", "60")?;
    fs::write(root.path("proc/sys/kernel/random/boot_id"), "boot-3\n")?;
    assert!(restore(&root, &state, ForeignChanges::Leave)?.rebooted);
    assert_eq!(pool()?.read(&root)?, "60", "nothing is written");
    assert!(!state.join(Store::APPLIED).exists());
    Ok(())
}

#[test]
fn what_cannot_be_undone_is_kept_and_tried_again() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    apply(&root, &state, "1", "100")?;
    let file = root.path(pool()?.path());
    fs::remove_file(&file)?;
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?.failed.len(), 1);
    fs::write(&file, "100\n")?;
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?.undone.len(), 1);
    assert_eq!(pool()?.read(&root)?, "3");
    Ok(())
}
