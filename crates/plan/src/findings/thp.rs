//! Findings about transparent huge pages: requests that fail, and costs for programs without requests.

use hugewise_jvm::jdks::Jdk;
use hugewise_linux::{
    facts::{Facts, kernel_version},
    hugepages::{contiguity::BUDDYINFO, thp},
};

use super::{Evidence, Finding, Severity, evidence, fragmentation::scattered, write};

pub fn findings(facts: &Facts, jdks: &[Jdk]) -> Vec<Finding> {
    let mut found = Vec::new();
    let Some((enabled, file)) = facts.thp.pmd_enabled() else { return found };
    let enabled_evidence = evidence(enabled, &file);
    let of_machine = file == thp::path("enabled");
    if enabled == "never" {
        found.push(Finding {
            id: "thp-off",
            severity: Severity::Warning,
            evidence: vec![enabled_evidence],
            detail: "Memory that requests transparent huge pages gets base pages: \
                          -XX:+UseTransparentHugePages has no effect, and JDK 11 prints no warning."
                .to_owned(),
            actions: write(
                "Permit transparent huge pages to programs that request them",
                if of_machine { "madvise" } else { "inherit" },
                &file,
            ),
        });
        return found;
    }
    if enabled == "always" {
        found.push(Finding {
            id: "thp-always",
            severity: Severity::Info,
            evidence: vec![enabled_evidence.clone()],
            detail: "Every program gets huge pages without a request, also for thread stacks: the \
                          resident memory of programs with many threads or sparse heaps can grow."
                .to_owned(),
            actions: write("Permit them only to programs that request them", "madvise", &file),
        });
        found.extend(bloat(facts, &enabled_evidence));
    }
    found.extend(stalls(facts, enabled, &enabled_evidence));
    found.extend(shared(facts, jdks));
    found
}

/// Whether the heap of ZGC, which is shared memory, stays on base pages.
fn shared(facts: &Facts, jdks: &[Jdk]) -> Option<Finding> {
    let (word, file) = facts.thp.pmd_shmem_enabled().filter(|(word, _)| ["never", "deny"].contains(word))?;
    // JDK 11 is the first release with ZGC.
    if jdks.iter().all(|jdk| jdk.major < 11) {
        return None;
    }
    let better = if file == thp::path("shmem_enabled") { "advise" } else { "inherit" };
    Some(Finding {
        id: "zgc-needs-shmem",
        severity: Severity::Info,
        evidence: vec![evidence(word, &file)],
        detail: "The heap of ZGC is shared memory: with -XX:+UseTransparentHugePages it stays on base \
                      pages, even if its log reports huge pages. Other collectors are not affected."
            .to_owned(),
        actions: write("Permit transparent huge pages in shared memory that requests them", better, &file),
    })
}

/// Whether khugepaged collapses ranges with almost no page in use.
fn bloat(facts: &Facts, enabled: &Evidence) -> Option<Finding> {
    let none = *facts.thp.khugepaged.max_ptes_none.known()?;
    let in_huge = facts.thp.pmd_size.known()?.bytes().whole_pages(*facts.base_page.known()?);
    if none.saturating_add(1) < in_huge.0 {
        return None;
    }
    let file = thp::path("khugepaged/max_ptes_none");
    Some(Finding {
        id: "khugepaged-bloat",
        severity: Severity::Warning,
        evidence: vec![enabled.clone(), evidence(none, &file)],
        detail: format!(
            "khugepaged collapses a range as soon as 1 of its {in_huge} base pages is in use: memory that a \
             program released or never used becomes resident."
        ),
        actions: write("Require at least 7 of 8 base pages to be in use", in_huge.0 / 8, &file),
    })
}

/// Whether page faults stall on compaction or reclaim for huge pages.
fn stalls(facts: &Facts, enabled: &str, enabled_evidence: &Evidence) -> Option<Finding> {
    let file = thp::path("defrag");
    let defrag = facts.thp.defrag.known()?.as_str();
    let mut seen = vec![enabled_evidence.clone(), evidence(defrag, &file)];
    let (detail, better, change) = match defrag {
        "always" if enabled == "always" => (
            format!(
                "Any program can stall in a page fault while the kernel compacts or reclaims memory for a huge page that \
                 the program did not request{}.",
                compactions(facts)
            ),
            "madvise",
            "Limit these stalls to programs that request transparent huge pages",
        ),
        "always" | "madvise" | "defer+madvise" => {
            let (pages, at_once, _) = scattered(facts)?;
            seen.push(evidence(format!("{at_once} pages of {} free", pages.page_size), BUDDYINFO));
            let detail = format!(
                "Memory is fragmented: programs that request transparent huge pages stall in the page fault until the \
                 kernel has compacted or reclaimed enough memory{}.",
                compactions(facts)
            );
            match knows_defer(facts) {
                true => (
                    detail,
                    "defer",
                    "Defer compaction: page faults get base pages, which khugepaged collapses later",
                ),
                false => (
                    detail,
                    "never",
                    "Compact no memory in page faults: they get base pages, which khugepaged collapses later",
                ),
            }
        }
        _ => return None,
    };
    Some(Finding {
        id: "thp-defrag-stalls",
        severity: Severity::Warning,
        evidence: seen,
        detail,
        actions: write(change, better, &file),
    })
}

/// How often programs have waited for compaction since boot, as a subordinate clause.
fn compactions(facts: &Facts) -> String {
    match facts.direct_compactions.known() {
        Some(times) if *times > 0 => {
            format!("; programs have waited for direct compaction {times} times since boot (compact_stall)")
        }
        _ => String::new(),
    }
}

/// Whether the kernel has the value `defer`, since Linux 4.6; true if its release is unknown.
fn knows_defer(facts: &Facts) -> bool {
    let version = facts.kernel.known().and_then(|release| kernel_version(release));
    version.is_none_or(|version| version >= (4, 6))
}
