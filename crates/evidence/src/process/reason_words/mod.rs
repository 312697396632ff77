//! Reasons as text, with the actions that remove them.

mod advice;
mod files;
mod holes;

use std::{cell::OnceCell, path::PathBuf};

use hugewise_linux::{
    action::Action,
    hugepages::pools::Pool,
    pages::occupancy::MIN_RESIDENT_PERCENT,
    proc::{mounts::Mount, process::Process, smaps::Memory},
    units::Bytes,
};

use super::{
    Kind, Known, MachineState, PartCounts,
    reason_by_settings::{Reason, ReasonWithCauses},
};

/// A reason as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    pub detail: String,
    /// Changes that would remove it.
    pub actions: Vec<Action>,
}

/// What the reasons of a process depend on.
pub struct Circumstances<'a> {
    pub known: Known<'a>,
    pub is_jvm: bool,
    /// Whether the kernel can collapse files, read when first needed; `None` if unknown.
    pub has_file_thp: OnceCell<Option<bool>>,
}

/// The reason as text, without claims beyond the readings.
pub fn words(judged: ReasonWithCauses, kind: Kind, counts: &PartCounts, around: &Circumstances<'_>) -> Words {
    let Known { machine, process: Process { pid, .. }, root, .. } = around.known;
    let setting = match counts.memory {
        Memory::Shared => &machine.shared,
        _ => &machine.anonymous,
    };
    let (word, file) = setting.clone().unwrap_or(("unknown".to_owned(), PathBuf::from("?")));
    let file = format!("/{}", file.display());
    let pmd = machine.pmd().map_or_else(|| "a huge page".to_owned(), |pmd| pmd.to_string());
    let collapse = collapse(*pid, machine, counts);
    let mut actions = Vec::new();
    let detail = match judged.reason {
        Reason::NeverAdvised => {
            actions = advice::requests(kind, counts, around, &file);
            actions.extend(collapse);
            match counts.mount.as_deref().and_then(Mount::tmpfs) {
                Some(tmpfs) => format!(
                    "the tmpfs at /{} is mounted with huge={}, and this region has no MADV_HUGEPAGE",
                    tmpfs.point.display(),
                    tmpfs.huge
                ),
                None => format!("THP mode is {word} ({file}), and this region has no MADV_HUGEPAGE"),
            }
        }
        Reason::TooSmall => format!("the mapping is smaller than {pmd}"),
        Reason::NotAligned => format!(
            "these pages are in no aligned range of {pmd}: they are at the start or the end of the mapping, or its file offset is not aligned like its address"
        ),
        Reason::OffHere => {
            actions.push(Action::new("Change the program: only it can enable huge pages here (MADV_HUGEPAGE)"));
            "the program disabled huge pages for this region (MADV_NOHUGEPAGE)".to_owned()
        }
        Reason::ThreadStack => {
            "the stack of a thread: since Linux 6.7 the kernel itself excludes stacks (MAP_STACK) from huge pages"
                .to_owned()
        }
        Reason::OffGlobally if machine.pmd().is_none() => {
            "this kernel has no transparent huge pages, or /sys is not mounted".to_owned()
        }
        Reason::OffGlobally => {
            actions.push(advice::permit(counts.memory, &file));
            format!("transparent huge pages are disabled for this kind of memory ({file} is {word})")
        }
        Reason::OffByMount => {
            let point = counts.mount.as_ref().map_or_else(|| "?".into(), |mount| mount.point.display().to_string());
            actions.push(advice::remount(&point, *pid, root));
            actions.extend(collapse);
            format!(
                "a file on the tmpfs at /{point}, which is mounted with huge=never, the default; shmem_enabled ({word}) \
                 does not apply to mounts, except deny and force"
            )
        }
        Reason::OffByPrctl => {
            actions.push(Action::new(
                "Start it without prctl(PR_SET_THP_DISABLE), which children inherit; a program that calls it itself may \
                 have an option for it (Redis: disable-thp no) or for pages of a pool (MariaDB: large-pages); for a \
                 unit, systemd calls it with MemoryTHP=disable",
            ));
            format!("the process or a parent disabled THP (THP_enabled is 0 in /proc/{pid}/status)")
        }
        Reason::OffUnlessAdvised => {
            actions.push(Action::new(
                "Start it without prctl(PR_SET_THP_DISABLE, PR_THP_DISABLE_EXCEPT_ADVISED), which children inherit; for \
                 a unit, systemd calls it with MemoryTHP=madvise",
            ));
            actions.extend(collapse);
            format!(
                "THP mode is {word}, but the kernel reports memory without MADV_HUGEPAGE as not eligible: the process \
                 or a parent most likely restricted THP to such memory (PR_THP_DISABLE_EXCEPT_ADVISED)"
            )
        }
        Reason::NotEligible => {
            "the kernel reports that this region is not eligible (THPeligible is 0), without a reason".to_owned()
        }
        Reason::File => files::words(counts, around),
        Reason::Holes => {
            actions.extend(holes::action(kind, around));
            actions.extend(collapse);
            holes::words(kind, counts, &pmd, around)
        }
        Reason::Kernel => "a mapping of the kernel".to_owned(),
        Reason::SplitSince => {
            actions.extend(collapse);
            format!("{} are PTE-mapped huge pages: the PMD entry was split, or never set", counts.pages.split)
        }
        Reason::Swapped => {
            actions.push(Action::new(
                "Free memory on this machine, so that the kernel stops swapping the process out",
            ));
            format!(
                "{} are swapped out: swap-out may split huge pages, and swap-in mostly brings back base pages",
                counts.pages.swap
            )
        }
        Reason::PoolShortAtStart if kind == Kind::Database => {
            actions.push(
                Action::new("Count the pages that the server needs, add them, then restart it")
                    .by("sudo hugewise plan -- postgres -D FOLDER"),
            );
            format!(
                "PostgreSQL requests pages of a pool for it unless huge_pages is off, and it is on base pages: either the pool was too small when the server started ({}), or huge_pages is off in its configuration; {file} is {word}, {}",
                pools(&machine.pools),
                match word.as_str() {
                    "never" | "deny" => "so it gets no transparent huge pages either",
                    "advise" => "and PostgreSQL does not advise, so it gets no transparent huge pages either",
                    _ => "so transparent huge pages are possible where address and file offset are aligned",
                }
            )
        }
        Reason::PoolShortAtStart => {
            actions.push(
                Action::new("Add the pages that the JVM needs, then restart it")
                    .by("sudo hugewise apply -- java …"),
            );
            format!(
                "the JVM's flags request pages of a pool, and this region is on base pages: most likely the pool was too small when the JVM started ({})",
                pools(&machine.pools)
            )
        }
        Reason::AdvisedAfterTouch => {
            actions.extend(collapse);
            format!(
                "huge pages are allowed here, and no huge-page allocation failed since boot (thp_fault_fallback is 0): the pages were touched {}",
                before(&word)
            )
        }
        Reason::Eligible | Reason::FragmentationThen => {
            actions.extend(collapse);
            eligible(judged, machine, &word)
        }
        Reason::Unknown => "the settings for huge pages could not be read".to_owned(),
        Reason::Pool => "on pages of a hugetlb pool".to_owned(),
        Reason::Stack => "the stack of the main thread, which grows by itself".to_owned(),
        Reason::NotAccessible => "reserved addresses without access".to_owned(),
    };
    Words { detail, actions }
}

/// The action that collapses resident base pages; `None` if no range is dense enough for `collapse`.
fn collapse(pid: u32, machine: &MachineState, counts: &PartCounts) -> Option<Action> {
    let dense = Some(counts.ranges.dense_bytes).filter(|dense| *dense > Bytes::ZERO)?;
    let settings = &machine.khugepaged;
    let pace = settings.pages_to_scan.known().zip(settings.scan_sleep_millisecs.known());
    let pace = pace.map_or_else(String::new, |(pages, pause)| {
        format!("; khugepaged, where it may, scans {pages} base pages of all processes every {pause} ms")
    });
    Some(
        Action::new(format!(
            "Collapse the {dense} in ranges that are at least {MIN_RESIDENT_PERCENT} % present now{pace}"
        ))
        .by(format!("hugewise collapse {pid}")),
    )
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
            |times| {
                format!(
                    "not excluded: thp_fault_fallback is {times}, since boot and of all processes, so it does not show \
                     that one failed here"
                )
            },
        );
        let defrag = machine.defrag.as_ref().map_or_else(String::new, |word| format!("; defrag is {word}"));
        may.push(format!("the huge-page allocation failed ({often}{defrag})"));
    }
    if judged.split {
        let often = machine.splits.map_or_else(String::new, |times| {
            format!(" (not excluded: {times} splits since boot, of all processes)")
        });
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
