//! Why memory is not on huge pages: decided from what was read, and from nothing else.

#[cfg(test)]
mod tests;

use std::{ops::Range, path::PathBuf};

use hugewise_linux::{
    hugepages::pools::Pool,
    pages::{occupancy, reason},
    proc::smaps::{Advice, Memory},
    units::Bytes,
};

use super::Machine;

pub use hugewise_linux::pages::reason::Reason;

/// What was read of one mapping, or of the part of it that belongs to a region.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Where the mapping lies.
    pub addresses: Range<u64>,
    /// Where in its file it begins.
    pub offset: u64,
    /// Whose memory it is.
    pub memory: Memory,
    /// What the program said of huge pages.
    pub advice: Advice,
    /// `THPeligible`.
    pub eligible: Option<bool>,
    /// Resident bytes on base pages, and on mTHP.
    pub small: Bytes,
    /// Bytes mapped by huge entries.
    pub thp: Bytes,
    /// Of the small ones: bytes of whole THPs.
    pub split: Bytes,
    /// Bytes that are swapped out.
    pub swap: Bytes,
    /// Did the process give up THP?
    pub process_off: bool,
    /// Did it ask for pages of a pool for this memory?
    pub wants_pool: bool,
}

/// A reason, and where that is [`Reason::Eligible`] what it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Judged {
    /// The reason.
    pub reason: Reason,
    /// Did faults fail to get a huge page since boot?
    fragmentation: bool,
    /// Were huge pages split since boot?
    split: bool,
}

impl Judged {
    /// What it may be.
    pub fn candidates(self) -> Vec<Reason> {
        let all = [
            (true, Reason::AdvisedAfterTouch),
            (self.fragmentation, Reason::FragmentationThen),
            (self.split, Reason::SplitSince),
        ];
        let all = all.into_iter().filter(|(possible, _)| *possible && self.reason == Reason::Eligible);
        all.map(|(_, reason)| reason).collect()
    }
}

/// Why what is small in this mapping is so; nothing where nothing is small.
pub fn judge(seen: &Seen, machine: &Machine) -> Option<Judged> {
    if seen.memory == Memory::Pool || seen.small + seen.swap == Bytes::ZERO {
        return None;
    }
    let mut judged = Judged {
        reason: Reason::Eligible,
        // What was not counted is possible.
        fragmentation: machine.fault_fallbacks != Some(0),
        split: machine.splits != Some(0),
    };
    judged.reason = reason(seen, machine);
    if judged.reason == Reason::Eligible && !judged.fragmentation && !judged.split {
        judged.reason = Reason::AdvisedAfterTouch;
    }
    Some(judged)
}

fn reason(seen: &Seen, machine: &Machine) -> Reason {
    let setting = match seen.memory {
        Memory::Shared => &machine.shared,
        _ => &machine.anonymous,
    };
    let Some(pmd) = machine.pmd() else { return Reason::OffGlobally };
    if let Some(reason) = reason::by_place(seen.memory, &seen.addresses, seen.offset, pmd) {
        return reason;
    }
    // Where each aligned huge page of the mapping is one, the rest lies at its edges.
    let whole = occupancy::whole(&seen.addresses, pmd);
    if seen.thp.0 >= whole.end.saturating_sub(whole.start) {
        return Reason::NotAligned;
    }
    if seen.wants_pool {
        return Reason::PoolShortAtStart;
    }
    if let Some(reason) = reason::by_request(seen.process_off, seen.advice) {
        return reason;
    }
    match setting.as_ref().map(|(word, _)| word.as_str()) {
        None => return Reason::NotTold,
        Some("never" | "deny") => return Reason::OffGlobally,
        Some("madvise" | "advise") if seen.advice == Advice::None => return Reason::NeverAdvised,
        Some(_) => {}
    }
    if seen.split.0 > seen.small.0 / 2 {
        Reason::SplitSince
    } else if seen.swap > Bytes::ZERO {
        Reason::Swapped
    } else if seen.eligible == Some(false) {
        Reason::NotEligible
    } else {
        Reason::Eligible
    }
}

/// What of a region goes into the words.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The process.
    pub pid: u32,
    /// Bytes on base pages of whole THPs.
    pub split: Bytes,
    /// Bytes that are swapped out.
    pub swap: Bytes,
    /// Whose memory it is, for the most part.
    pub memory: Memory,
}

/// A reason in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// What was read, and what it means.
    pub sentence: String,
    /// What would change it.
    pub next_step: Option<String>,
}

/// The reason for people. Says no more than was read.
pub fn words(judged: Judged, evidence: &Evidence, machine: &Machine) -> Words {
    let setting = match evidence.memory {
        Memory::Shared => &machine.shared,
        _ => &machine.anonymous,
    };
    let (word, file) = setting.clone().unwrap_or(("not known".to_owned(), PathBuf::from("?")));
    let file = format!("/{}", file.display());
    let pmd = machine.pmd().map_or_else(|| "a huge page".to_owned(), |pmd| pmd.to_string());
    let collapse = collapse(evidence.pid, machine);
    let (sentence, next_step) = match judged.reason {
        Reason::NeverAdvised => (
            format!("huge pages go to those who ask ({file} is {word}), and the program did not ask here"),
            Some(advise(evidence, &file)),
        ),
        Reason::TooSmall => (format!("the mapping is smaller than {pmd}"), None),
        Reason::NotAligned => (
            format!(
                "no whole page of {pmd} lies there: it is before the first or behind the last multiple of {pmd} in the mapping, or its place in the file does not fit"
            ),
            None,
        ),
        Reason::OffHere => (
            "the program said that it wants no huge pages here (MADV_NOHUGEPAGE)".to_owned(),
            Some("only the program can take that back (MADV_HUGEPAGE)".to_owned()),
        ),
        Reason::OffGlobally if machine.pmd().is_none() => {
            ("this kernel has no transparent huge pages, or /sys is not mounted".to_owned(), None)
        }
        Reason::OffGlobally => (
            format!("this machine gives no huge pages to memory of this kind ({file} is {word})"),
            Some(format!(
                "echo {} | sudo tee {file}; memory that is touched after that is concerned",
                if evidence.memory == Memory::Shared { "advise" } else { "madvise" }
            )),
        ),
        Reason::OffByPrctl => (
            format!(
                "the process, or a parent of it, gave up THP (THP_enabled is 0 in /proc/{}/status)",
                evidence.pid
            ),
            Some("start it without prctl(PR_SET_THP_DISABLE); it is inherited".to_owned()),
        ),
        Reason::NotEligible => (
            "the kernel would make no huge page here now (THPeligible is 0), and does not say why".to_owned(),
            None,
        ),
        Reason::File => {
            ("it is a file's: whether it lies on large folios is up to the file system".to_owned(), None)
        }
        Reason::Kernel => ("it is the kernel's own".to_owned(), None),
        Reason::SplitSince => (
            format!(
                "{} are whole huge pages that base page table entries map: the huge entry was split, or never made",
                evidence.split
            ),
            Some(collapse),
        ),
        Reason::Swapped => (
            format!(
                "{} are swapped out: huge pages may be split for that, and mostly base pages come back",
                evidence.swap
            ),
            Some("find out what takes the memory; swap and huge pages do not go together".to_owned()),
        ),
        Reason::PoolShortAtStart => (
            format!(
                "the JVM was told to use pages of a pool, and this is on base pages: most likely the pool was short when it started ({})",
                pools(&machine.pools)
            ),
            Some(
                "'hugewise plan -- java …' tells how many pages it needs, and 'hugewise apply -- java …' adds them; then start it again".to_owned(),
            ),
        ),
        Reason::AdvisedAfterTouch => (
            format!(
                "huge pages are allowed here, and no fault failed to get one since boot (thp_fault_fallback is 0): its pages were there {}",
                before(&word)
            ),
            Some(collapse),
        ),
        Reason::Eligible | Reason::FragmentationThen => (eligible(judged, machine, &word), Some(collapse)),
        Reason::NotTold => ("the settings for huge pages could not be read".to_owned(), None),
        Reason::Pool => ("on pages of a hugetlb pool".to_owned(), None),
        Reason::Stack => ("the stack of the main thread, which grows by itself".to_owned(), None),
        Reason::NotAccessible => ("reserved addresses without access".to_owned(), None),
    };
    Words { sentence, next_step }
}

fn advise(evidence: &Evidence, file: &str) -> String {
    match evidence.memory {
        Memory::Shared => {
            "the program must ask: madvise(MADV_HUGEPAGE), for a JVM with ZGC -XX:+UseTransparentHugePages"
                .to_owned()
        }
        _ => format!(
            "the program must ask: a JVM by -XX:+UseTransparentHugePages, malloc by \
             GLIBC_TUNABLES=glibc.malloc.hugetlb=1; or 'always' in {file}; for what is there now: \
             hugewise collapse {}",
            evidence.pid
        ),
    }
}

/// What may still make huge pages of those that are there.
fn collapse(pid: u32, machine: &Machine) -> String {
    let settings = &machine.khugepaged;
    let pace = settings.pages_to_scan.known().zip(settings.scan_sleep_millisecs.known());
    let pace = pace.map_or_else(String::new, |(pages, pause)| {
        format!(" (it looks at {pages} base pages every {pause}ms, of all processes together)")
    });
    format!(
        "'hugewise collapse {pid}' replaces them now; khugepaged may do so{pace}, or the program by \
         madvise(MADV_COLLAPSE)"
    )
}

/// Before what its pages must have been there.
fn before(word: &str) -> &'static str {
    match word {
        "madvise" | "advise" => "before the advice, or before a whole huge page fitted into the mapping",
        _ => "before a whole huge page fitted into the mapping, or before the setting",
    }
}

fn eligible(judged: Judged, machine: &Machine, word: &str) -> String {
    let mut may = vec![format!("its pages were there {}", before(word))];
    if judged.fragmentation {
        let often = machine.fault_fallbacks.map_or_else(
            || "this kernel does not count how often that happens".to_owned(),
            |times| format!("that happened {times} times on this machine since boot, thp_fault_fallback"),
        );
        let defrag = machine.defrag.as_ref().map_or_else(String::new, |word| format!("; defrag is {word}"));
        may.push(format!("no huge page was free then ({often}{defrag})"));
    }
    if judged.split {
        let often = machine
            .splits
            .map_or_else(String::new, |times| format!(" ({times} splits on this machine since boot)"));
        may.push(format!("they were split since{often}"));
    }
    format!("huge pages are allowed here now; what was before cannot be told: {}", may.join(", or "))
}

fn pools(pools: &[Pool]) -> String {
    let all = pools
        .iter()
        .map(|pool| format!("now {} of {} pages of {} are free", pool.free, pool.total, pool.page_size));
    let all: Vec<String> = all.collect();
    if all.is_empty() { "this kernel has no pools".to_owned() } else { all.join(", ") }
}
