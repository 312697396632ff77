//! Transparent huge pages: do those who ask get them, do those who do not ask pay?

use hugewise_jvm::jdks::Jdk;
use hugewise_linux::{
    facts::Facts,
    hugepages::{contiguity::BUDDYINFO, thp},
};

use super::{Evidence, Finding, Severity, evidence, pools::scattered, write};

/// All of them.
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
            consequence: "Memory that asks for transparent huge pages gets base pages: \
                          -XX:+UseTransparentHugePages has no effect, and JDK 11 does not even say so."
                .to_owned(),
            command: write(if of_machine { "madvise" } else { "inherit" }, &file),
        });
        return found;
    }
    if enabled == "always" {
        found.push(Finding {
            id: "thp-always",
            severity: Severity::Info,
            evidence: vec![enabled_evidence.clone()],
            consequence: "Every program gets huge pages unasked, thread stacks too: the resident memory of \
                          programs with many threads or sparse heaps can grow."
                .to_owned(),
            command: write("madvise", &file),
        });
        found.extend(bloat(facts, &enabled_evidence));
    }
    found.extend(stalls(facts, enabled, &enabled_evidence));
    found.extend(shared(facts, jdks));
    found
}

/// Does the heap of ZGC, which is shared memory, stay on base pages?
fn shared(facts: &Facts, jdks: &[Jdk]) -> Option<Finding> {
    let (word, file) = facts.thp.pmd_shmem_enabled().filter(|(word, _)| ["never", "deny"].contains(word))?;
    // The first release with ZGC.
    if jdks.iter().all(|jdk| jdk.major < 11) {
        return None;
    }
    let better = if file == thp::path("shmem_enabled") { "advise" } else { "inherit" };
    Some(Finding {
        id: "zgc-needs-shmem",
        severity: Severity::Info,
        evidence: vec![evidence(word, &file)],
        consequence: "The heap of ZGC is shared memory: with -XX:+UseTransparentHugePages it stays on base \
                      pages here, whatever its log says. Other collectors are not concerned."
            .to_owned(),
        command: write(better, &file),
    })
}

/// Does khugepaged fill up every hole?
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
        consequence: format!(
            "khugepaged makes a huge page as soon as 1 of its {in_huge} base pages is in use: memory that a \
             program gave back, or never used, becomes resident. After the command at least 7 of 8 must be \
             in use."
        ),
        command: write(in_huge.0 / 8, &file),
    })
}

/// Do programs wait for huge pages to be made?
fn stalls(facts: &Facts, enabled: &str, enabled_evidence: &Evidence) -> Option<Finding> {
    let file = thp::path("defrag");
    let defrag = facts.thp.defrag.known()?.as_str();
    let mut seen = vec![enabled_evidence.clone(), evidence(defrag, &file)];
    let (consequence, better) = match defrag {
        "always" if enabled == "always" => (
            "Every program may wait in a page fault while the kernel compacts or reclaims memory for a huge \
             page that it never asked for.",
            "madvise",
        ),
        "always" | "madvise" | "defer+madvise" => {
            let (pages, at_once, _) = scattered(facts)?;
            seen.push(evidence(format!("{at_once} pages of {} lie ready", pages.page_size), BUDDYINFO));
            (
                "Memory is fragmented, and programs that ask for transparent huge pages wait in the page \
                 fault until the kernel has compacted or reclaimed enough. With `defer` they go on with base \
                 pages, and khugepaged replaces those later.",
                "defer",
            )
        }
        _ => return None,
    };
    Some(Finding {
        id: "thp-defrag-stalls",
        severity: Severity::Warning,
        evidence: seen,
        consequence: consequence.to_owned(),
        command: write(better, &file),
    })
}
