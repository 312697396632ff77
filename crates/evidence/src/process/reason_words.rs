//! Reasons as text, with the actions that remove them.

use std::path::PathBuf;

use hugewise_linux::{action::Action, hugepages::pools::Pool, proc::smaps::Memory};

use super::{
    Kind, MachineState, PartCounts,
    reason_by_settings::{Reason, ReasonWithCauses},
};

/// A reason as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    pub detail: String,
    /// Changes that would remove it.
    pub actions: Vec<Action>,
}

/// The reason as text, without claims beyond the readings.
pub fn words(
    judged: ReasonWithCauses,
    kind: Kind,
    counts: &PartCounts,
    pid: u32,
    machine: &MachineState,
) -> Words {
    let setting = match counts.memory {
        Memory::Shared => &machine.shared,
        _ => &machine.anonymous,
    };
    let (word, file) = setting.clone().unwrap_or(("unknown".to_owned(), PathBuf::from("?")));
    let file = format!("/{}", file.display());
    let pmd = machine.pmd().map_or_else(|| "a huge page".to_owned(), |pmd| pmd.to_string());
    let collapse = collapse(pid, machine);
    let (detail, action) = match judged.reason {
        Reason::NeverAdvised => (
            format!("THP mode is {word} ({file}), and this region has no MADV_HUGEPAGE"),
            Some(advise(counts.memory, pid, &file)),
        ),
        Reason::TooSmall => (format!("the mapping is smaller than {pmd}"), None),
        Reason::NotAligned => (
            format!(
                "these pages are in no aligned range of {pmd}: they are at the start or the end of the mapping, or its file offset is not aligned like its address"
            ),
            None,
        ),
        Reason::OffHere => (
            "the program disabled huge pages for this region (MADV_NOHUGEPAGE)".to_owned(),
            Some(Action::new("Change the program: only it can enable huge pages here (MADV_HUGEPAGE)")),
        ),
        Reason::OffGlobally if machine.pmd().is_none() => {
            ("this kernel has no transparent huge pages, or /sys is not mounted".to_owned(), None)
        }
        Reason::OffGlobally => (
            format!("transparent huge pages are disabled for this kind of memory ({file} is {word})"),
            Some(Action::new("Permit huge pages; this applies to memory touched afterwards").by(format!(
                "echo {} | sudo tee {file}",
                if counts.memory == Memory::Shared { "advise" } else { "madvise" }
            ))),
        ),
        Reason::OffByPrctl => (
            format!("the process or a parent disabled THP (THP_enabled is 0 in /proc/{}/status)", pid),
            Some(Action::new(
                "Start it without prctl(PR_SET_THP_DISABLE), which children inherit; a program that calls it itself may \
                 have an option for it (Redis: disable-thp no) or for pages of a pool (MariaDB: large-pages)",
            )),
        ),
        Reason::NotEligible => (
            "the kernel reports that this region is not eligible (THPeligible is 0), without a reason"
                .to_owned(),
            None,
        ),
        Reason::File => ("file-backed: large folios depend on the file system".to_owned(), None),
        Reason::Kernel => ("a mapping of the kernel".to_owned(), None),
        Reason::SplitSince => (
            format!(
                "{} are PTE-mapped huge pages: the PMD entry was split, or never set",
                counts.pages.split
            ),
            Some(collapse),
        ),
        Reason::Swapped => (
            format!(
                "{} are swapped out: swap-out may split huge pages, and swap-in mostly brings back base pages",
                counts.pages.swap
            ),
            Some(Action::new(
                "Free memory on this machine, so that the kernel stops swapping the process out",
            )),
        ),
        Reason::PoolShortAtStart if kind == Kind::Database => (
            format!(
                "PostgreSQL requests pages of a pool for it unless huge_pages is off, and it is on base pages: either the pool was too small when the server started ({}), or huge_pages is off in its configuration; {file} is {word}, {}",
                pools(&machine.pools),
                match word.as_str() {
                    "never" | "deny" => "so it gets no transparent huge pages either",
                    "advise" => "and PostgreSQL does not advise, so it gets no transparent huge pages either",
                    _ => "so transparent huge pages are possible where address and file offset are aligned",
                }
            ),
            Some(
                Action::new("Count the pages that the server needs, add them, then restart it")
                    .by("sudo hugewise plan -- postgres -D FOLDER"),
            ),
        ),
        Reason::PoolShortAtStart => (
            format!(
                "the JVM's flags request pages of a pool, and this region is on base pages: most likely the pool was too small when the JVM started ({})",
                pools(&machine.pools)
            ),
            Some(
                Action::new("Add the pages that the JVM needs, then restart it")
                    .by("sudo hugewise apply -- java …"),
            ),
        ),
        Reason::AdvisedAfterTouch => (
            format!(
                "huge pages are allowed here, and no huge-page allocation failed since boot (thp_fault_fallback is 0): the pages were touched {}",
                before(&word)
            ),
            Some(collapse),
        ),
        Reason::Eligible | Reason::FragmentationThen => (eligible(judged, machine, &word), Some(collapse)),
        Reason::Unknown => ("the settings for huge pages could not be read".to_owned(), None),
        Reason::Pool => ("on pages of a hugetlb pool".to_owned(), None),
        Reason::Stack => ("the stack of the main thread, which grows by itself".to_owned(), None),
        Reason::NotAccessible => ("reserved addresses without access".to_owned(), None),
    };
    Words { detail, actions: action.into_iter().collect() }
}

fn advise(memory: Memory, pid: u32, file: &str) -> Action {
    match memory {
        Memory::Shared => Action::new(
            "Change the program to call madvise(MADV_HUGEPAGE); start a JVM with ZGC with \
             -XX:+UseTransparentHugePages",
        ),
        _ => Action::new(format!(
            "Request huge pages: in a JVM by -XX:+UseTransparentHugePages, for malloc by \
             GLIBC_TUNABLES=glibc.malloc.hugetlb=1; or write 'always' to {file}; this command collapses the pages \
             that are resident now"
        ))
        .by(format!("hugewise collapse {}", pid)),
    }
}

/// The action that collapses resident base pages.
fn collapse(pid: u32, machine: &MachineState) -> Action {
    let settings = &machine.khugepaged;
    let pace = settings.pages_to_scan.known().zip(settings.scan_sleep_millisecs.known());
    let pace = pace.map_or_else(String::new, |(pages, pause)| {
        format!(" (it scans {pages} base pages every {pause} ms, of all processes together)")
    });
    Action::new(format!("Collapse the base pages now; otherwise khugepaged may do so later{pace}"))
        .by(format!("hugewise collapse {pid}"))
}

/// The event before which the pages were touched.
fn before(word: &str) -> &'static str {
    match word {
        "madvise" | "advise" => {
            "before the MADV_HUGEPAGE call, or before the mapping was large enough for a huge page"
        }
        _ => "before the mapping was large enough for a huge page, or before the THP mode was set",
    }
}

fn eligible(judged: ReasonWithCauses, machine: &MachineState, word: &str) -> String {
    let mut may = vec![format!("the pages were touched {}", before(word))];
    if judged.fragmentation {
        let often = machine.fault_fallbacks.map_or_else(
            || "this kernel does not count failures".to_owned(),
            |times| format!("{times} failures on this machine since boot, thp_fault_fallback"),
        );
        let defrag = machine.defrag.as_ref().map_or_else(String::new, |word| format!("; defrag is {word}"));
        may.push(format!("the huge-page allocation failed ({often}{defrag})"));
    }
    if judged.split {
        let often = machine
            .splits
            .map_or_else(String::new, |times| format!(", {times} times on this machine since boot"));
        may.push(format!("huge pages were split{often}"));
    }
    format!("huge pages are allowed here now; possible causes: {}", may.join("; or "))
}

fn pools(pools: &[Pool]) -> String {
    let all = pools
        .iter()
        .map(|pool| format!("now {} of {} pages of {} are free", pool.free, pool.total, pool.page_size));
    let all: Vec<String> = all.collect();
    if all.is_empty() { "this kernel has no pools".to_owned() } else { all.join(", ") }
}
