//! A pool of the running kernel grows through the journal and is restored.
//!
//! Needs root and a pool of 2 MiB pages; skipped without them. Waits up to ten minutes while
//! another hugewise holds the settings.

use std::{
    error::Error,
    fs,
    path::Path,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use hugewise_changes::{
    journal::{Journal, JournalError, STATE_DIR},
    pool_growth::{self, Shortage},
};
use hugewise_linux::{
    interrupt::Interrupt,
    root::Root,
    settings::Setting,
    testing::trials::{self, TestResult, Trial},
    units::{Bytes, PageSize, Pages},
};
use libtest_mimic::Arguments;

type NamedTest = (&'static str, fn() -> TestResult);

const NR_HUGEPAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const JOURNAL_TIME_LIMIT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let tests: [NamedTest; 4] = [
        ("a pool grows by the missing pages and is restored", grows),
        ("dropping the journal restores the pool", dropped),
        ("the floor is kept and reported", the_floor_is_kept),
        ("a pool that is large enough does not grow", nothing_to_grow),
    ];
    let skipped = fs::OpenOptions::new()
        .write(true)
        .open(NR_HUGEPAGES)
        .err()
        .map(|error| format!("{NR_HUGEPAGES}: {error}"));
    let trial = |(name, test): NamedTest| Trial::new(name, skipped.clone(), test);
    trials::run(&arguments, tests.into_iter().map(trial).collect())
}

fn two() -> Result<PageSize, Box<dyn Error>> {
    Ok(PageSize::new(Bytes(2 << 20))?)
}

/// Opens the journal of this machine as soon as it is free.
fn journal() -> Result<Journal, JournalError> {
    let begin = Instant::now();
    loop {
        match Journal::open(&Root::live(), Path::new(STATE_DIR), "tests of the pools") {
            Err(JournalError::Busy(_) | JournalError::Unfinished(_))
                if begin.elapsed() < JOURNAL_TIME_LIMIT =>
            {
                thread::sleep(Duration::from_millis(100));
            }
            opened => return opened,
        }
    }
}

fn nr() -> Result<u64, Box<dyn Error>> {
    Ok(fs::read_to_string(NR_HUGEPAGES)?.trim().parse()?)
}

/// `more` pages beyond the available pages.
fn demand(more: u64) -> Result<Pages, Box<dyn Error>> {
    Ok(pool_growth::pool(&Root::live(), two()?)?.available() + Pages(more))
}

fn grow(
    journal: &mut Journal,
    wanted: Pages,
    floor: Bytes,
) -> Result<Result<Pages, Shortage>, Box<dyn Error>> {
    Ok(pool_growth::grow(&Root::live(), journal, two()?, wanted, floor, &Interrupt::default()))
}

fn grows() -> TestResult {
    let mut journal = journal()?;
    let before = nr()?;
    // More than one step of [`pool_growth::resize`].
    let wanted = demand(300)?;
    let grown = grow(&mut journal, wanted, Bytes::ZERO)??;
    assert_eq!((grown, nr()?), (Pages(300), before + 300));
    assert!(pool_growth::pool(&Root::live(), two()?)?.available() >= wanted);
    let restored = journal.close();
    assert!(restored.failed.is_empty(), "{:?}", restored.failed);
    let pool = Setting::Pool { page_size: two()?, node: None };
    assert_eq!(restored.settings.len(), pool.parts(&Root::live()).len());
    is_preserved(before)
}

fn dropped() -> TestResult {
    let mut journal = journal()?;
    let before = nr()?;
    let wanted = demand(5)?;
    grow(&mut journal, wanted, Bytes::ZERO)??;
    assert_eq!(nr()?, before + 5);
    drop(journal);
    is_preserved(before)
}

fn the_floor_is_kept() -> TestResult {
    let mut journal = journal()?;
    let before = nr()?;
    let floor = Bytes(1 << 50);
    let wanted = demand(7)?;
    let Err(shortage) = grow(&mut journal, wanted, floor)? else {
        return Err("the pool grew below the floor".into());
    };
    let said = shortage.to_string();
    assert!(matches!(shortage, Shortage::Floor { needed: Pages(7), .. }), "{said}");
    for word in ["7 more pages of 2MiB", &format!("the floor is {floor}")] {
        assert!(said.contains(word), "'{word}' in: {said}");
    }
    assert!(journal.entries().next().is_none(), "no setting was changed");
    drop(journal);
    is_preserved(before)
}

fn nothing_to_grow() -> TestResult {
    let mut journal = journal()?;
    let before = nr()?;
    let wanted = demand(0)?;
    assert_eq!(grow(&mut journal, wanted, Bytes(1 << 50))??, Pages(0));
    drop(journal);
    is_preserved(before)
}

/// Checks the pool while holding the journal, so that no other hugewise changes it.
fn is_preserved(before: u64) -> TestResult {
    let _held = journal()?;
    assert_eq!(nr()?, before, "pool state not preserved");
    Ok(())
}
