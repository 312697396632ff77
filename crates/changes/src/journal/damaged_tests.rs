//! Journals that are cut off, edited, or not ours: they are reported, nothing of them is lost, and all other journals
//! are restored.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    process::Command,
};

use proptest::prelude::*;

use super::{
    tests::{TestResult, machine, pool},
    *,
};

const SHMALL: &str = "proc/sys/kernel/shmall";
const ACCOUNTING: &str = "proc/sys/kernel/task_delayacct";

fn options(damaged: DamagedFiles) -> RestoreOptions<'static> {
    RestoreOptions { damaged, ..RestoreOptions::of_settings(ForeignChanges::Leave) }
}

/// As after a SIGKILL of a command and of a recording, beside changes of `apply`. Returns the machine and the folder of
/// journals.
fn killed(dir: &Path) -> Result<(Root, PathBuf), Box<dyn std::error::Error>> {
    let root = machine(dir)?;
    let state = dir.join("state");
    fs::write(root.path(SHMALL), "7\n")?;
    fs::write(root.path(ACCOUNTING), "0\n")?;
    let next = |id: &str| fs::write(root.path("proc/sys/kernel/random/uuid"), id);
    next("1")?;
    let mut journal = Journal::open(&root, &state, "apply")?;
    journal.set(Setting::ShmAll, "8")?;
    journal.keep()?;
    next("2")?;
    let mut journal = Journal::open(&root, &state, "compare")?;
    journal.set(pool()?, "100")?;
    next("3")?;
    let mut recording = Journal::open_recording(&root, &state, "record")?;
    recording.set(Setting::TaskDelayacct, "1")?;
    let files = [Store::RECORD, Store::RECORDING].map(|name| state.join(name));
    let texts = [fs::read(&files[0])?, fs::read(&files[1])?];
    drop((journal, recording));
    for (file, text) in files.iter().zip(texts) {
        fs::write(file, text)?;
    }
    fs::write(root.path(pool()?.path()), "100\n")?;
    fs::write(root.path(ACCOUNTING), "1\n")?;
    Ok((root, state))
}

/// The pool, shmall and delay accounting: before 3, 7 and 0; changed 100, 8 and 1.
/// The values as they are in the files: a damaged journal may have words there that are no values.
fn values(root: &Root) -> Result<[String; 3], Box<dyn std::error::Error>> {
    let value = |setting: Setting| fs::read_to_string(root.path(setting.path()));
    let values = [value(pool()?)?, value(Setting::ShmAll)?, value(Setting::TaskDelayacct)?];
    Ok(values.map(|value| value.trim().to_owned()))
}

#[test]
fn a_damaged_file_keeps_no_other_from_being_restored() -> TestResult {
    type Damage = fn(&Path) -> std::io::Result<()>;
    let damages: [(&str, Damage, &str); 8] = [
        ("empty", |file| fs::write(file, ""), "it is empty"),
        ("cut off", |file| fs::write(file, &fs::read(file)?[..40]), "before its end"),
        ("no JSON", |file| fs::write(file, "pools\0"), "line 1"),
        ("foreign", |file| fs::write(file, "[1]"), "line 1"),
        (
            "too large",
            |file| File::options().write(true).open(file)?.set_len((64 << 20) + 1),
            "longer than 64MiB",
        ),
        (
            "a link",
            |file| {
                fs::rename(file, file.with_extension("moved"))?;
                symlink(file.with_extension("moved"), file)
            },
            "not a regular file",
        ),
        (
            "a pipe",
            |file| {
                fs::remove_file(file)?;
                Command::new("mkfifo").arg(file).status().map(drop)
            },
            "not a regular file",
        ),
        (
            "a folder",
            |file| {
                fs::remove_file(file)?;
                fs::create_dir(file)
            },
            "not a regular file",
        ),
    ];
    for (what, damage, reason) in damages {
        for (name, restored) in [
            (Store::RECORD, ["100", "7", "0"]),
            (Store::APPLIED, ["3", "8", "0"]),
            (Store::RECORDING, ["3", "7", "1"]),
        ] {
            let at = format!("{name}, {what}");
            let refused = refusal(name, damage)?.ok_or_else(|| format!("{at}: opened"))?;
            let said = refused.to_string();
            assert!(refused.is_of_another() && said.contains("restore --set-aside"), "{at}: {said}");
            let dir = tempfile::tempdir()?;
            let (root, state) = killed(dir.path())?;
            damage(&state.join(name))?;
            for _ in 0..2 {
                let done = restore(&root, &state, ForeignChanges::Leave)?;
                assert_eq!(values(&root)?, restored, "{at}");
                let [damaged] = &done.damaged[..] else {
                    return Err(format!("{at}: {:?}", done.damaged).into());
                };
                assert!(
                    damaged.file == state.join(name) && damaged.reason.contains(reason),
                    "{at}: {damaged:?}"
                );
                assert!(
                    damaged.set_aside.is_none() && fs::symlink_metadata(state.join(name)).is_ok(),
                    "{at}"
                );
            }
            let done = restore_with(&root, &state, &options(DamagedFiles::SetAside))?;
            let [DamagedFile { set_aside: Some(kept), .. }] = &done.damaged[..] else {
                return Err(at.into());
            };
            let found = fs::symlink_metadata(kept)?;
            assert!(!found.is_file() || found.permissions().mode() & 0o777 == 0o600, "{at}");
            assert_eq!(restore(&root, &state, ForeignChanges::Leave)?, Restored::default(), "{at}");
            assert!(Journal::open(&root, &state, "next").is_ok(), "{at}");
        }
    }
    Ok(())
}

/// Why a command cannot change settings beside this damaged file only.
fn refusal(
    name: &str,
    damage: fn(&Path) -> std::io::Result<()>,
) -> Result<Option<JournalError>, Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let (root, state) = killed(dir.path())?;
    damage(&state.join(name))?;
    if name == Store::APPLIED {
        fs::remove_file(state.join(Store::RECORD))?;
    }
    let opened = match name {
        Store::RECORDING => Journal::open_recording(&root, &state, "next"),
        _ => Journal::open(&root, &state, "next"),
    };
    Ok(opened.err())
}

#[test]
fn a_damaged_entry_keeps_no_other_from_being_restored() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (root, state) = killed(dir.path())?;
    let file = state.join(Store::RECORD);
    let text = fs::read_to_string(&file)?;
    let other = "\"entries\": [\n {\"setting\": {\"pool\": {\"page_size_bytes\": 3, \"node\": null}}, \"was\": \"9\"},";
    let edited = text.replace("\"entries\": [", other);
    assert_ne!(edited, text);
    fs::write(&file, edited)?;
    for _ in 0..2 {
        let done = restore(&root, &state, ForeignChanges::Leave)?;
        assert_eq!(values(&root)?, ["3", "7", "0"]);
        assert!(done.damaged[0].reason.contains("an entry in it cannot be read"), "{:?}", done.damaged);
    }
    let done = restore_with(&root, &state, &options(DamagedFiles::SetAside))?;
    let kept = done.damaged[0].set_aside.clone().ok_or("it stays")?;
    assert!(fs::read_to_string(kept)?.contains("\"page_size_bytes\": 3"), "the entry is lost");
    assert_eq!(restore(&root, &state, ForeignChanges::Leave)?, Restored::default());
    Ok(())
}

#[test]
fn settings_in_a_journal_that_is_cut_off_are_named() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (root, state) = killed(dir.path())?;
    let file = state.join(Store::RECORD);
    let text = fs::read_to_string(&file)?;
    let end = text.find("\"surplus\"").ok_or("no entry")?;
    for (cut, readable) in [(end, 0), (text.len() - 4, 1)] {
        fs::write(&file, &text[..cut])?;
        let done = restore(&root, &state, ForeignChanges::Leave)?;
        let read: Vec<_> =
            done.damaged[0].readable.iter().map(|entry| (entry.setting, entry.was.as_str())).collect();
        assert_eq!(read, [(pool()?, "3")][..readable]);
    }
    Ok(())
}

/// A lock that is none keeps no command from excluding another.
#[test]
fn a_lock_that_is_no_file_is_replaced_by_that_of_the_folder() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (root, state) = killed(dir.path())?;
    fs::remove_file(state.join(Store::LOCK))?;
    Command::new("mkfifo").arg(state.join(Store::LOCK)).status()?;
    restore(&root, &state, ForeignChanges::Leave)?;
    assert_eq!(values(&root)?, ["3", "7", "0"]);
    let _held = Journal::open(&root, &state, "first")?;
    assert!(matches!(Journal::open(&root, &state, "second"), Err(JournalError::Busy(_))));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Wherever a file ends, and whatever bit of it is wrong: no panic, and the other files are restored.
    #[test]
    fn no_damage_spreads(which in 0..3_usize, cut in 0.0..1.0_f64, bit in 0..8_u32, is_cut: bool) {
        let checked = || -> TestResult {
            let dir = tempfile::tempdir()?;
            let (root, state) = killed(dir.path())?;
            let name = [Store::RECORD, Store::APPLIED, Store::RECORDING][which];
            let mut bytes = fs::read(state.join(name))?;
            let at = ((bytes.len() as f64) * cut) as usize;
            if is_cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1 << bit;
            }
            fs::write(state.join(name), &bytes)?;
            let _ = restore(&root, &state, ForeignChanges::Leave)?;
            let now = values(&root)?;
            for (other, before) in ["3", "7", "0"].into_iter().enumerate().filter(|(other, _)| *other != which) {
                if now[other] != before {
                    return Err(format!("{name} damaged at {at}: {now:?}").into());
                }
            }
            let _ = restore_with(&root, &state, &options(DamagedFiles::SetAside))?;
            restore(&root, &state, ForeignChanges::Leave)?;
            Ok(())
        };
        let failed = checked().err().map(|error| error.to_string());
        prop_assert_eq!(failed, None);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in "[{}\\[\\]\":, a-z0-9]{0,300}") {
        for bytes in [&bytes[..], text.as_bytes()] {
            let _ = record::parse::<Record>(bytes);
            let _ = record::parse::<AppliedSettings>(bytes);
            let _ = record::salvaged(bytes);
        }
    }
}
