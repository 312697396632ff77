//! The journal: settings as they were, written and synced before the first change.
//!
//! Whoever changes a machine-wide setting holds the journal. It is a file in a private folder,
//! with a lock beside it that the kernel takes back when its holder dies. Closing or dropping the
//! [`Journal`] puts everything back; after a SIGKILL, [`restore`] does the same from the file, as
//! often as it is called. Settings do not outlive a boot, so a journal of an earlier boot restores
//! nothing.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    root::{ReadError, Root},
    settings::Setting,
    sys::{file, process},
};

/// Where the journal of this machine lies.
pub const STATE_DIR: &str = "/run/hugewise";
/// Set in the environment of every process started for the holder of a journal, to its run id.
pub const RUN_VARIABLE: &str = "HUGEWISE_RUN";
/// How long a pool may take to give back pages that a dying process held.
const SETTLING: Duration = Duration::from_secs(20);

/// What stands in the journal's file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// The boot that the settings belong to.
    pub boot_id: String,
    /// Names this use of the journal; children carry it in [`RUN_VARIABLE`].
    pub run_id: String,
    /// Process id of the holder.
    pub owner: u32,
    /// What it was doing, for people.
    pub purpose: String,
    /// What was changed, in that order.
    pub entries: Vec<Entry>,
}

/// One setting before its first change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// The setting.
    pub setting: Setting,
    /// Its value before.
    pub was: String,
    /// Of a pool: the surplus pages that were in use before.
    #[serde(default)]
    pub surplus: u64,
}

/// Why the journal could not be opened, or a setting not changed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process holds it.
    #[error("another hugewise holds the settings of this machine ({0}): wait until it has ended")]
    Busy(String),
    /// A holder died before it put its settings back.
    #[error("{0}: run 'hugewise restore' first")]
    Unfinished(String),
    /// The journal's folder or file.
    #[error("the journal {}: {source}; without it nothing is changed", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The value before the change could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The kernel refused the value.
    #[error("writing '{value}' to {}: {source}", path.display())]
    Write {
        /// The setting's file.
        path: PathBuf,
        /// The value.
        value: String,
        /// What the kernel answered.
        source: io::Error,
    },
}

/// Settings being changed, and put back when this is closed or dropped.
#[derive(Debug)]
pub struct Journal {
    root: Root,
    store: Store,
    record: Record,
    closed: bool,
}

/// What putting back did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Restored {
    /// What was being done when it broke off; nothing where there was no journal.
    pub purpose: Option<String>,
    /// The settings that are now as they were.
    pub settings: Vec<Entry>,
    /// The settings that are not, with the reason.
    pub failed: Vec<(Entry, String)>,
    /// Processes of the broken-off run that were still there, and were ended.
    pub ended_processes: Vec<u32>,
    /// Was the machine rebooted since, so that there was nothing to put back?
    pub rebooted: bool,
}

impl Journal {
    /// Takes the journal in `dir`, to say what it is for.
    pub fn open(root: &Root, dir: &Path, purpose: &str) -> Result<Journal, JournalError> {
        let store = Store::lock(dir)?;
        if let Some(record) = store.load()? {
            return Err(JournalError::Unfinished(record.unfinished()));
        }
        let record = Record {
            boot_id: boot_id(root)?,
            run_id: root.value("proc/sys/kernel/random/uuid", "a UUID")?,
            owner: std::process::id(),
            purpose: purpose.to_owned(),
            entries: Vec::new(),
        };
        store.save(&record)?;
        file::private_dir(&store.scratch(&record))
            .map_err(|source| JournalError::File { path: store.scratch(&record), source })?;
        Ok(Journal { root: root.clone(), store, record, closed: false })
    }

    /// The id to put into [`RUN_VARIABLE`] of every child.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.record.run_id
    }

    /// A private folder that vanishes with the journal.
    #[must_use]
    pub fn scratch(&self) -> PathBuf {
        self.store.scratch(&self.record)
    }

    /// What was changed so far, with the values before.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.record.entries
    }

    /// Writes the value before into the journal, then changes the setting; answers what the
    /// setting is afterwards, which may be less than was asked for.
    pub fn set(&mut self, setting: Setting, value: &str) -> Result<String, JournalError> {
        let parts = setting.parts(&self.root);
        let known = self.record.entries.len();
        for part in parts {
            if !self.record.entries.iter().any(|entry| entry.setting == part) {
                let (was, surplus) = (part.read(&self.root)?, part.surplus(&self.root)?);
                self.record.entries.push(Entry { setting: part, was, surplus });
            }
        }
        if self.record.entries.len() > known {
            self.store.save(&self.record)?;
        }
        setting.write(&self.root, value).map_err(|source| JournalError::Write {
            path: self.root.path(setting.path()),
            value: value.to_owned(),
            source,
        })?;
        Ok(setting.read(&self.root)?)
    }

    /// Puts everything back and ends the journal.
    #[must_use]
    pub fn close(mut self) -> Restored {
        self.closed = true;
        put_back(&self.root, &self.store, &self.record)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if !self.closed {
            put_back(&self.root, &self.store, &self.record);
        }
    }
}

/// What a dead holder left in the journal of `dir`, if any did; only its owner can tell.
#[must_use]
pub fn unfinished(dir: &Path) -> Option<Record> {
    if !dir.join(Store::RECORD).exists() {
        return None;
    }
    Store::lock(dir).ok()?.load().ok()?
}

/// Puts back what a dead holder left; does nothing where there is nothing to do.
pub fn restore(root: &Root, dir: &Path) -> Result<Restored, JournalError> {
    if !dir.exists() {
        return Ok(Restored::default());
    }
    let store = Store::lock(dir)?;
    match store.load()? {
        Some(record) => Ok(put_back(root, &store, &record)),
        None => Ok(Restored::default()),
    }
}

impl Record {
    /// In words, what is left to put back.
    #[must_use]
    pub fn unfinished(&self) -> String {
        let changed = match self.entries.len() {
            0 => "no setting was changed".to_owned(),
            1 => "1 setting is not as it was".to_owned(),
            n => format!("{n} settings are not as they were"),
        };
        format!(
            "an earlier hugewise (pid {}, {}) was ended before it could clean up; {changed}",
            self.owner, self.purpose
        )
    }
}

fn put_back(root: &Root, store: &Store, record: &Record) -> Restored {
    let mut done = Restored { purpose: Some(record.purpose.clone()), ..Restored::default() };
    if boot_id(root).is_ok_and(|now| now != record.boot_id) {
        done.rebooted = true;
    } else {
        if record.owner != std::process::id() {
            done.ended_processes = end_processes_of(root, &record.run_id);
        }
        for entry in record.entries.iter().rev() {
            match put_back_one(root, entry) {
                Ok(()) => done.settings.push(entry.clone()),
                Err(reason) => done.failed.push((entry.clone(), reason)),
            }
        }
    }
    if done.failed.is_empty() {
        store.clear(record);
    }
    done
}

/// Writes the old value until it is read back, and waits for what dying processes still hold.
///
/// What reads as it was is not written: its change may have been refused, as where /sys is read-only.
fn put_back_one(root: &Root, entry: &Entry) -> Result<(), String> {
    let begin = Instant::now();
    let now = || entry.setting.read(root).map_err(|error| error.to_string());
    let surplus_gone = || entry.setting.surplus(root).is_ok_and(|surplus| surplus <= entry.surplus);
    loop {
        if now()? != entry.was {
            entry.setting.write(root, &entry.was).map_err(|error| error.to_string())?;
        }
        let now = now()?;
        let late = begin.elapsed() > SETTLING;
        // Surplus pages that do not go are in somebody else's use.
        if now == entry.was && (surplus_gone() || late) {
            return Ok(());
        }
        if late {
            return Err(format!("wrote {}, and it still reads {now}", entry.was));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Ends what still runs of a holder that died: the processes that carry its run id.
fn end_processes_of(root: &Root, run_id: &str) -> Vec<u32> {
    let marker = format!("{RUN_VARIABLE}={run_id}");
    let carries_it = |pid: u32| {
        root.read_bytes(format!("proc/{pid}/environ"))
            .is_ok_and(|environ| environ.split(|b| *b == 0).any(|v| v == marker.as_bytes()))
    };
    let pids = root.list("proc").unwrap_or_default();
    pids.iter()
        .filter_map(|name| name.parse().ok())
        .filter(|pid| *pid != std::process::id() && carries_it(*pid))
        .filter(|pid| process::end_process(*pid, || carries_it(*pid)).is_ok())
        .collect()
}

fn boot_id(root: &Root) -> Result<String, ReadError> {
    root.value("proc/sys/kernel/random/boot_id", "a UUID")
}

/// The journal's folder, locked.
#[derive(Debug)]
struct Store {
    path: PathBuf,
    dir: File,
    /// Held open for its lock.
    _lock: File,
}

impl Store {
    const RECORD: &str = "journal.json";
    const DRAFT: &str = "journal.draft";

    fn lock(path: &Path) -> Result<Store, JournalError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            |source| JournalError::File { path, source }
        };
        let dir = file::private_dir(path).map_err(failed(path))?;
        let lock_path = path.join("lock");
        let lock = private_file(&lock_path, OpenOptions::new().create(true).truncate(false))
            .map_err(failed(&lock_path))?;
        if !file::try_lock(&lock).map_err(failed(&lock_path))? {
            let holder = read_record(&path.join(Store::RECORD)).ok().flatten();
            let who = holder.map_or_else(
                || "which one cannot be told".to_owned(),
                |record| format!("pid {}, {}", record.owner, record.purpose),
            );
            return Err(JournalError::Busy(who));
        }
        // Of a holder that was killed while it wrote; nothing was changed on its word.
        let _ = fs::remove_file(path.join(Store::DRAFT));
        Ok(Store { path: path.to_owned(), dir, _lock: lock })
    }

    fn load(&self) -> Result<Option<Record>, JournalError> {
        let path = self.path.join(Store::RECORD);
        read_record(&path).map_err(|source| JournalError::File { path, source })
    }

    /// Replaces the record, and returns only when it would survive a crash.
    fn save(&self, record: &Record) -> Result<(), JournalError> {
        let path = self.path.join(Store::RECORD);
        let draft = self.path.join(Store::DRAFT);
        let write = || {
            let mut file = private_file(&draft, OpenOptions::new().create(true).truncate(true))?;
            file.write_all(&serde_json::to_vec_pretty(record)?)?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            self.dir.sync_all()
        };
        write().map_err(|source| JournalError::File { path: path.clone(), source })
    }

    fn clear(&self, record: &Record) {
        // What is left behind here is found again by the next call.
        let _ = fs::remove_dir_all(self.scratch(record));
        let _ = fs::remove_file(self.path.join(Store::RECORD));
        let _ = self.dir.sync_all();
    }

    fn scratch(&self, record: &Record) -> PathBuf {
        let name: String = record.run_id.chars().filter(char::is_ascii_alphanumeric).collect();
        self.path.join(format!("run-{name}"))
    }
}

fn private_file(path: &Path, how: &mut OpenOptions) -> io::Result<File> {
    how.write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}

fn read_record(path: &Path) -> io::Result<Option<Record>> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::from),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::units::{Bytes, PageSize};

    type Tested = Result<(), Box<dyn Error>>;

    /// A machine with a 2 MiB pool, made of plain files.
    fn machine(dir: &Path) -> Result<Root, Box<dyn Error>> {
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

    fn pool() -> Result<Setting, Box<dyn Error>> {
        Ok(Setting::Pool { page_size: PageSize::new(Bytes(2 << 20))?, node: None })
    }

    #[test]
    fn a_half_written_journal_vanishes() -> Tested {
        let dir = tempfile::tempdir()?;
        let root = machine(dir.path())?;
        let state = dir.path().join("state");
        drop(Journal::open(&root, &state, "test")?);
        fs::write(state.join(Store::DRAFT), "{")?;
        assert_eq!(restore(&root, &state)?, Restored::default());
        assert!(!state.join(Store::DRAFT).exists());
        Ok(())
    }

    #[test]
    fn what_was_changed_is_put_back_in_reverse() -> Tested {
        let dir = tempfile::tempdir()?;
        let root = machine(dir.path())?;
        let mut journal = Journal::open(&root, &dir.path().join("state"), "a test")?;
        assert_eq!(journal.set(pool()?, "100")?, "100");
        assert_eq!(journal.set(pool()?, "200")?, "200");
        assert_eq!(journal.entries().len(), 1, "the first value is the one to go back to");
        let restored = journal.close();
        assert_eq!(restored.failed, []);
        assert_eq!(pool()?.read(&root)?, "3");
        assert!(!dir.path().join("state/journal.json").exists());
        Ok(())
    }

    #[test]
    fn a_dropped_journal_puts_back_too() -> Tested {
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

    /// What SIGKILL leaves: the record on disk, nobody holding the lock.
    fn killed(root: &Root, state: &Path) -> Tested {
        let mut journal = Journal::open(root, state, "a test")?;
        journal.set(pool()?, "100")?;
        let record = fs::read(state.join("journal.json"))?;
        drop(journal);
        fs::write(state.join("journal.json"), record)?;
        fs::write(root.path(pool()?.path()), "100\n")?;
        Ok(())
    }

    #[test]
    fn after_a_kill_the_next_one_says_so_and_restore_mends_it_twice() -> Tested {
        let dir = tempfile::tempdir()?;
        let root = machine(dir.path())?;
        let state = dir.path().join("state");
        killed(&root, &state)?;
        assert!(unfinished(&state).is_some());
        let refused = Journal::open(&root, &state, "the next").err().ok_or("opened over a dead one")?;
        assert!(refused.to_string().contains("hugewise restore"), "{refused}");
        assert_eq!(restore(&root, &state)?.settings.len(), 1);
        assert_eq!(pool()?.read(&root)?, "3");
        assert_eq!(restore(&root, &state)?, Restored::default());
        Ok(())
    }

    #[test]
    fn after_a_reboot_nothing_is_written() -> Tested {
        let dir = tempfile::tempdir()?;
        let root = machine(dir.path())?;
        let state = dir.path().join("state");
        killed(&root, &state)?;
        fs::write(root.path("proc/sys/kernel/random/boot_id"), "boot-2\n")?;
        assert!(restore(&root, &state)?.rebooted);
        assert_eq!(pool()?.read(&root)?, "100");
        assert!(unfinished(&state).is_none());
        Ok(())
    }

    #[test]
    fn surplus_pages_of_others_are_not_made_a_part_of_the_pool() -> Tested {
        let dir = tempfile::tempdir()?;
        let root = machine(dir.path())?;
        // Three pages in all, one of them surplus: two were set aside.
        fs::write(root.path("sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages"), "1\n")?;
        let mut journal = Journal::open(&root, &dir.path().join("state"), "a test")?;
        journal.set(pool()?, "100")?;
        assert_eq!((journal.entries()[0].was.as_str(), journal.entries()[0].surplus), ("2", 1));
        std::mem::forget(journal); // Plain files do not turn pages into surplus: nothing to put back.
        Ok(())
    }

    #[test]
    fn only_one_may_hold_it() -> Tested {
        let dir = tempfile::tempdir()?;
        let root = machine(dir.path())?;
        let state = dir.path().join("state");
        let _held = Journal::open(&root, &state, "the first")?;
        let refused = Journal::open(&root, &state, "the second").err().ok_or("two holders")?;
        assert!(refused.to_string().contains("the first"), "{refused}");
        assert!(restore(&root, &state).is_err());
        Ok(())
    }

    #[test]
    fn a_setting_that_cannot_be_written_back_is_kept_in_the_journal() -> Tested {
        let dir = tempfile::tempdir()?;
        let root = machine(dir.path())?;
        let state = dir.path().join("state");
        killed(&root, &state)?;
        fs::remove_file(root.path(pool()?.path()))?;
        assert_eq!(restore(&root, &state)?.failed.len(), 1);
        assert!(unfinished(&state).is_some());
        Ok(())
    }

    #[test]
    fn a_pool_over_several_nodes_is_put_back_node_by_node() -> Tested {
        let dir = tempfile::tempdir()?;
        let root = machine(dir.path())?;
        for (node, pages) in [(0, "2"), (1, "1")] {
            let part = Setting::Pool { page_size: PageSize::new(Bytes(2 << 20))?, node: Some(node) };
            let folder = root.path(crate::pools::folder(PageSize::new(Bytes(2 << 20))?, Some(node)));
            fs::create_dir_all(&folder)?;
            for (file, pages) in
                [("nr_hugepages", pages), ("free_hugepages", pages), ("surplus_hugepages", "0")]
            {
                fs::write(folder.join(file), pages)?;
            }
            assert!(part.read(&root).is_ok());
        }
        let mut journal = Journal::open(&root, &dir.path().join("state"), "a test")?;
        journal.set(pool()?, "100")?;
        let was: Vec<_> = journal.entries().iter().map(|entry| entry.was.clone()).collect();
        assert_eq!(was, ["2", "1"]);
        Ok(())
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() -> Tested {
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
}
