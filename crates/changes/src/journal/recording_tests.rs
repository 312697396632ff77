//! The journal of recordings, and the JVM logs in it.

use std::fs;

use hugewise_linux::reading::Reason;

use super::{
    tests::{TestResult, machine},
    *,
};

fn undoing(undo: ProcessUndo<'_>) -> RestoreOptions<'_> {
    RestoreOptions { undo, ..RestoreOptions::of_settings(ForeignChanges::Leave) }
}

/// Process 7, started at tick 100.
fn with_a_process(root: &Root) -> TestResult {
    fs::create_dir_all(root.path("proc/7/root/tmp"))?;
    fs::create_dir_all(root.path("tmp"))?;
    fs::write(root.path("proc/7/status"), "Name:\tjava\nState:\tS\nVmSize:\t4 kB\n")?;
    Ok(fs::write(root.path("proc/7/stat"), format!("7 (java) S {} 100 0", ["0"; 18].join(" ")))?)
}

#[test]
fn a_jvm_log_stays_in_the_journal_until_it_is_off() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    with_a_process(&root)?;
    let log = JvmLog::of(&root, 7, "/tmp/.hugewise-1.log".to_owned()).ok_or("no such process")?;
    let mut journal = Journal::open(&root, &state, "record")?;
    journal.note_jvm_log(log.clone())?;
    // What it cannot switch off stays in the journal, with the reason.
    let deaf =
        ProcessUndo { switch_off: &|_: &JvmLog| Reason::err("it does not answer"), ..ProcessUndo::default() };
    let hearing = ProcessUndo { switch_off: &|_: &JvmLog| Ok(()), ..ProcessUndo::default() };
    let left = journal.close_with(&deaf).jvm_logs_left;
    assert_eq!(left.iter().map(|log| log.reason.as_str()).collect::<Vec<_>>(), ["it does not answer"]);
    let refused =
        Journal::open(&root, &state, "the next").err().ok_or("opened over an unfinished journal")?;
    assert!(refused.to_string().contains("1 setting is not restored"), "{refused}");
    assert_eq!(restore_with(&root, &state, &undoing(deaf))?.jvm_logs_left.len(), 1);
    let restored = restore_with(&root, &state, &undoing(hearing))?;
    assert_eq!((restored.jvm_logs, restored.jvm_logs_left.len()), (vec![log], 0));
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?, Restored::default());
    Ok(())
}

#[test]
fn a_log_that_stays_on_delays_no_other_recording() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    with_a_process(&root)?;
    let log = JvmLog::of(&root, 7, "/tmp/.hugewise-1.log".to_owned()).ok_or("no such process")?;
    let mut first = Journal::open_recording(&root, &state, "record")?;
    first.note_jvm_log(log.clone())?;
    let scratch = first.scratch();
    assert_eq!(first.close().jvm_logs_left.len(), 1);
    fs::write(root.path("proc/sys/kernel/random/uuid"), "another\n")?;
    let second = Journal::open_recording(&root, &state, "record")?;
    assert_eq!(second.jvm_logs(), std::slice::from_ref(&log));
    assert!(!scratch.exists() && second.scratch().exists());
    assert_eq!(second.close().jvm_logs_left.len(), 1, "it is still in the journal");
    let heard = ProcessUndo { switch_off: &|_| Ok(()), ..ProcessUndo::default() };
    assert_eq!(restore_with(&root, &state, &undoing(heard))?.jvm_logs, [log]);
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?, Restored::default());
    Ok(())
}

#[test]
fn memory_of_a_process_stays_in_the_journal_until_it_is_put_back() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    with_a_process(&root)?;
    let memory =
        ProcessMemory { pid: 7, started: 100, region: "heap".to_owned(), huge: vec![[2 << 20, 4 << 20]] };
    let mut journal = Journal::open(&root, &state, "compare --live 7")?;
    journal.note_memory(memory.clone())?;
    assert_eq!(journal.close().memory_left.len(), 1);
    let refused =
        Journal::open(&root, &state, "the next").err().ok_or("opened over an unfinished journal")?;
    assert!(refused.to_string().contains("1 setting is not restored"), "{refused}");
    let put = std::cell::RefCell::new(Vec::new());
    let undo = ProcessUndo {
        put_back: &|memory: &ProcessMemory| {
            put.borrow_mut().push(memory.clone());
            Ok(())
        },
        ..ProcessUndo::default()
    };
    let restored = restore_with(&root, &state, &undoing(undo))?;
    assert_eq!((restored.memory, put.borrow().clone()), (vec![memory.clone()], vec![memory.clone()]));
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?, Restored::default());
    // Memory of another process with the same pid is not touched, and memory that was put back is forgotten.
    for other in [ProcessMemory { started: 99, ..memory.clone() }, memory] {
        let mut journal = Journal::open(&root, &state, "compare --live 7")?;
        journal.note_memory(other.clone())?;
        if other.started == 100 {
            journal.forget_memory(&other)?;
        }
        assert!(journal.close().memory_left.is_empty());
    }
    Ok(())
}

#[test]
fn a_jvm_that_has_ended_writes_no_log() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    with_a_process(&root)?;
    let file = root.path("tmp/.hugewise-1.log");
    let log = JvmLog::of(&root, 7, "/tmp/.hugewise-1.log".to_owned()).ok_or("no such process")?;
    let mut journal = Journal::open(&root, &state, "record")?;
    journal.note_jvm_log(log)?;
    fs::write(&file, "")?;
    // Another process has the same pid.
    fs::write(root.path("proc/7/stat"), format!("7 (java) S {} 200 0", ["0"; 18].join(" ")))?;
    let restored = journal.close();
    assert_eq!((restored.jvm_logs.len(), restored.jvm_logs_left.len()), (1, 0));
    assert!(!file.exists(), "the log file remains");
    assert!(unfinished(&state).is_none());
    Ok(())
}

#[test]
fn a_recording_and_the_settings_do_not_wait_for_each_other() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    fs::create_dir_all(root.path("proc/sys/kernel"))?;
    let accounting = root.path("proc/sys/kernel/task_delayacct");
    fs::write(&accounting, "0\n")?;
    let mut recording = Journal::open_recording(&root, &state, "record")?;
    recording.set(Setting::TaskDelayacct, "1")?;
    let settings = Journal::open(&root, &state, "compare")?;
    let second = Journal::open_recording(&root, &state, "record").err().ok_or("two recordings at once")?;
    assert!(matches!(second, JournalError::Busy(_)), "{second}");
    assert_eq!(settings.close().failed, []);
    // restore skips a running recording and restores after a killed one.
    let restored = restore(&root, &state, ForeignChanges::Leave)?;
    assert!(restored.recording.is_some_and(|who| who.ends_with("record")));
    assert_eq!(fs::read_to_string(&accounting)?.trim(), "1");
    // As after a kill: the lock is released, the file remains.
    let file = recordings(&state).join(Store::RECORD);
    let left = fs::read(&file)?;
    drop(recording);
    fs::write(&file, left)?;
    fs::write(&accounting, "1\n")?;
    assert!(unfinished(&state).is_some_and(|left| left.purpose == "record"));
    let settings = Journal::open(&root, &state, "compare")?;
    assert!(
        restore(&root, &state, ForeignChanges::Leave)
            .is_err_and(|error| matches!(error, JournalError::Busy(_)))
    );
    assert_eq!(settings.close().failed, []);
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?.purpose.as_deref(), Some("record"));
    assert_eq!(fs::read_to_string(&accounting)?.trim(), "0");
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?, Restored::default());
    Ok(())
}

/// What another process can delay comes after the settings of all journals: its pages first, then its log.
#[test]
fn the_settings_of_all_journals_come_first() -> TestResult {
    let dir = tempfile::tempdir()?;
    let root = machine(dir.path())?;
    let state = dir.path().join("state");
    with_a_process(&root)?;
    let next = |id: &str| fs::write(root.path("proc/sys/kernel/random/uuid"), id);
    fs::write(root.path("proc/sys/kernel/shmall"), "7\n")?;
    fs::write(root.path("proc/sys/kernel/task_delayacct"), "0\n")?;
    let mut journal = Journal::open(&root, &state, "apply")?;
    journal.set(Setting::ShmAll, "8")?;
    journal.keep()?;
    next("second")?;
    let mut journal = Journal::open(&root, &state, "compare --live 7")?;
    journal.set(tests::pool()?, "100")?;
    journal.note_memory(ProcessMemory {
        pid: 7,
        started: 100,
        region: "heap".to_owned(),
        huge: Vec::new(),
    })?;
    let mut recording = Journal::open_recording(&root, &state, "record")?;
    recording.set(Setting::TaskDelayacct, "1")?;
    recording.note_jvm_log(JvmLog { pid: 7, started: 100, file: "/tmp/.hugewise-1.log".to_owned() })?;
    let left = [Store::RECORD, Store::RECORDING].map(|name| fs::read(state.join(name)));
    drop((journal, recording));
    for (name, text) in [Store::RECORD, Store::RECORDING].into_iter().zip(left) {
        fs::write(state.join(name), text?)?;
    }
    fs::write(root.path(tests::pool()?.path()), "100\n")?;
    fs::write(root.path("proc/sys/kernel/task_delayacct"), "1\n")?;
    let order = std::cell::RefCell::new(Vec::new());
    let settings = || {
        let pool = tests::pool().ok().and_then(|pool| pool.read(&root).ok());
        [pool, Setting::ShmAll.read(&root).ok(), Setting::TaskDelayacct.read(&root).ok()]
    };
    let undo = ProcessUndo {
        put_back: &|_: &ProcessMemory| {
            order.borrow_mut().push(("pages", settings()));
            Ok(())
        },
        switch_off: &|_: &JvmLog| {
            order.borrow_mut().push(("log", settings()));
            Ok(())
        },
    };
    restore_with(&root, &state, &undoing(undo))?;
    let restored = ["3", "7", "0"].map(|value| Some(value.to_owned()));
    assert_eq!(order.into_inner(), [("pages", restored.clone()), ("log", restored)]);
    Ok(())
}

/// A log that its JVM was never asked for, because it cannot be attached to, is off: the process has no such file open.
#[test]
fn a_log_that_was_never_opened_is_off() -> TestResult {
    for (open, exists, asks) in
        [(false, false, false), (true, false, true), (false, true, true), (true, true, true)]
    {
        let dir = tempfile::tempdir()?;
        let root = machine(dir.path())?;
        let state = dir.path().join("state");
        with_a_process(&root)?;
        fs::create_dir_all(root.path("proc/7/fd"))?;
        std::os::unix::fs::symlink("/dev/null", root.path("proc/7/fd/0"))?;
        if open {
            let target = "/tmp/.hugewise-1.log (deleted)";
            std::os::unix::fs::symlink(target, root.path("proc/7/fd/3"))?;
        }
        if exists {
            fs::write(root.path("proc/7/root/tmp/.hugewise-1.log"), "")?;
        }
        let mut journal = Journal::open(&root, &state, "record")?;
        journal.note_jvm_log(JvmLog { pid: 7, started: 100, file: "/tmp/.hugewise-1.log".to_owned() })?;
        let deaf = ProcessUndo {
            switch_off: &|_: &JvmLog| Reason::err("it cannot be attached to"),
            ..ProcessUndo::default()
        };
        let restored = journal.close_with(&deaf);
        assert_eq!(restored.jvm_logs_left.len(), usize::from(asks), "open {open}, exists {exists}");
        assert_eq!(unfinished(&state).is_some(), asks);
    }
    Ok(())
}
