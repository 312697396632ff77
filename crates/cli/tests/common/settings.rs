//! Snapshots of the machine's settings.

use std::{
    collections::BTreeMap,
    error::Error,
    fs::{self, File},
    io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use hugewise_changes::journal::STATE_DIR;
use hugewise_linux::{root::Root, sys::file::try_lock, tracefs::Tracefs};

use crate::{TestResult, start};

/// Longest wait for an event, for example the end of another hugewise.
pub const MAX_WAIT_TIME: Duration = Duration::from_secs(600);

const SYS: &str = "/sys/kernel/mm";
const THP: &str = "/sys/kernel/mm/transparent_hugepage";
const NODES: &str = "/sys/devices/system/node";
/// The journal of a process that runs, or was killed.
pub const JOURNAL: &str = "/run/hugewise/journal.json";
/// The journal of a recording, which other processes do not wait for.
pub const RECORDING: &str = "/run/hugewise/recording/journal.json";
/// The old values of settings changed by `apply`.
pub const APPLIED: &str = "/run/hugewise/applied.json";

/// All settings that hugewise may change, and all files and segments that it may leave behind.
#[derive(Debug)]
pub struct Snapshot(BTreeMap<String, String>);

impl Snapshot {
    /// Takes a snapshot while no hugewise is running.
    pub fn take() -> Result<Snapshot, Box<dyn Error>> {
        at_rest(|| Snapshot(read()))
    }

    /// Fails if anything differs from the snapshot or a process of these tests still runs.
    pub fn is_preserved(&self) -> TestResult {
        self.compare(&start::left_running())
    }

    /// Fails if anything differs from the snapshot; processes of the test may still run.
    pub fn settings_are_preserved(&self) -> TestResult {
        self.compare(&[])
    }

    fn compare(&self, left: &[String]) -> TestResult {
        let now = at_rest(read)?;
        let mut different: Vec<String> = self
            .0
            .keys()
            .chain(now.keys().filter(|key| !self.0.contains_key(*key)))
            .filter(|key| self.0.get(*key) != now.get(*key))
            .map(|key| {
                let value = |of: &BTreeMap<String, String>| {
                    of.get(key).map_or_else(|| "nothing".to_owned(), |value| format!("'{value}'"))
                };
                format!("  {key}: {} before, {} after", value(&self.0), value(&now))
            })
            .collect();
        different.extend(left.iter().map(|process| format!("  still running: {process}")));
        if different.is_empty() {
            return Ok(());
        }
        Err(format!("the state of the machine was not preserved:\n{}", different.join("\n")).into())
    }
}

/// Calls `look` while it holds the locks of the journals, so that no other hugewise changes settings.
fn at_rest<T>(look: impl Fn() -> T) -> Result<T, Box<dyn Error>> {
    let begin = Instant::now();
    loop {
        let locks = [open_lock("lock")?, open_lock("recording/lock")?];
        let mut locked = true;
        for lock in locks.iter().flatten() {
            locked &= try_lock(lock)?;
        }
        let left = [JOURNAL, RECORDING, APPLIED].into_iter().any(|file| Path::new(file).exists());
        let max_wait = match (locked, left) {
            (true, false) => return Ok(look()),
            // Left behind by a killed process or by `apply`; another test may restore it.
            (true, true) => MAX_WAIT_TIME / 12,
            (false, _) => MAX_WAIT_TIME,
        };
        drop(locks);
        if begin.elapsed() > max_wait {
            let of = |file| fs::read_to_string(file).unwrap_or_default();
            let journal = of(JOURNAL) + &of(RECORDING);
            return Err(format!(
                "another hugewise is running, or was killed and not restored, or settings are applied \
                 ('hugewise restore' undoes them): {journal}"
            )
            .into());
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// `None` if the lock does not exist, or may not be opened: then the tests cannot change settings either.
fn open_lock(name: &str) -> io::Result<Option<File>> {
    match File::open(Path::new(STATE_DIR).join(name)) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn read() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut note = |path: String| {
        if let Ok(text) = fs::read_to_string(&path) {
            all.insert(path, text.trim().to_owned());
        }
    };
    let mut pools = vec![format!("{SYS}/hugepages")];
    pools.extend(names(NODES).into_iter().map(|node| format!("{NODES}/{node}/hugepages")));
    for folder in pools {
        for size in names(&folder) {
            for file in ["nr_hugepages", "nr_overcommit_hugepages", "surplus_hugepages"] {
                note(format!("{folder}/{size}/{file}"));
            }
        }
    }
    for file in ["enabled", "defrag", "shmem_enabled", "use_zero_page"] {
        note(format!("{THP}/{file}"));
    }
    for size in names(THP).into_iter().filter(|name| name.starts_with("hugepages-")) {
        for file in ["enabled", "shmem_enabled"] {
            note(format!("{THP}/{size}/{file}"));
        }
    }
    for file in names(&format!("{THP}/khugepaged")) {
        // These two files are counters.
        if !matches!(file.as_str(), "full_scans" | "pages_collapsed") {
            note(format!("{THP}/khugepaged/{file}"));
        }
    }
    for file in ["kernel/task_delayacct", "kernel/shmmax", "kernel/shmall", "vm/hugetlb_shm_group"] {
        note(format!("/proc/sys/{file}"));
    }
    if let Ok(tracefs) = Tracefs::open(&Root::live()) {
        for name in tracefs.instances().unwrap_or_default() {
            all.insert(format!("tracing instance {name}"), "there".to_owned());
        }
    }
    // The Java library, whose tests may run at the same time, has folders of its own.
    let is_ours = |name: &String| name.starts_with(".hugewise-") && !name.starts_with(".hugewise-jvm-");
    for name in names("/tmp").into_iter().filter(is_ours) {
        all.insert(format!("/tmp/{name}"), "there".to_owned());
    }
    for folder in [STATE_DIR.to_owned(), format!("{STATE_DIR}/recording")] {
        for name in names(&folder).into_iter().filter(|name| name != "lock" && name != "recording") {
            all.insert(format!("{folder}/{name}"), "there".to_owned());
        }
    }
    // Key, identifier, permissions and size; other columns change without hugewise. Segments smaller than a huge page are
    // of other programs: a PostgreSQL beside these tests has one.
    for line in fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default().lines().skip(1) {
        let segment: Vec<&str> = line.split_whitespace().take(4).collect();
        if segment.last().and_then(|bytes| bytes.parse().ok()).is_some_and(|bytes: u64| bytes >= 1 << 20) {
            all.insert(format!("SysV shared memory {}", segment.join(" ")), "there".to_owned());
        }
    }
    all
}

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
