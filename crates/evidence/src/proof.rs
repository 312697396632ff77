//! Decides from the kernel's readings whether a run got the pages of its backing.

use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    pages::coverage::Coverage,
    units::Bytes,
};

/// Largest coverage, 0 to 1, of a run that counts as a run on base pages.
const BASE_LIMIT: f64 = 0.05;

/// The causes if memory that was requested through malloc is not on transparent huge pages, and not on pages of
/// a pool.
const NOT_IN_MAIN_ARENA: &str = "most likely the program's memory is not in the main arena of a glibc that \
                                 supports glibc.malloc.hugetlb (2.35 or later): another allocator, other \
                                 threads' arenas, or a static program; or this run's glibc ignored \
                                 glibc.malloc.hugetlb, as 2.36 does in some starts";
const NOT_IN_POOL: &str = "most likely the program's memory is not malloc'd by a glibc that supports \
                           glibc.malloc.hugetlb (2.35 or later): another allocator, or a static program; or \
                           the program maps more memory at once than the pool has";

/// Readings of one run.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// Coverage of the region of interest, or the reason why it is unknown.
    pub coverage: Result<&'a Coverage, &'a str>,
    /// Output of the program, which contains a JVM's warnings.
    pub output: &'a str,
    /// Failed huge-page allocations of the whole machine during the run (`thp_fault_fallback`); `None` if not
    /// reported.
    pub thp_fallbacks: Option<u64>,
    /// Why its JVM did not take the options that were passed; `None` if it did, or if that is unknown.
    pub not_taken: Option<&'a str>,
    /// Whether the backing is requested through the C library's malloc.
    pub through_malloc: bool,
}

/// Why the run does not count for `backing`; `None` if it got its pages.
///
/// `least` is the smallest sufficient share of huge pages, 0 to 1.
pub fn fell_back(backing: Backing, evidence: &Evidence, sizes: &PageSizes, least: f64) -> Option<String> {
    let coverage = match evidence.coverage {
        Ok(coverage) => coverage,
        Err(reason) => return Some(format!("coverage unknown: {reason}")),
    };
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    if backing == Backing::Base {
        let share = coverage.share().unwrap_or(0.0);
        return (share > BASE_LIMIT).then(|| {
            let got = format!("{} of the memory was on huge pages (at most 5 % for base)", percent(share));
            evidence.not_taken.map_or(got.clone(), |why| format!("{got}: {why}"))
        });
    }
    let size = sizes.huge_page_of(backing)?;
    let share = coverage.share_on(size).unwrap_or(0.0);
    if share >= least {
        return None;
    }
    let got = format!(
        "{} of {} was on {size} pages ({} required)",
        percent(share),
        coverage.resident,
        percent(least)
    );
    let cause = cause(backing, evidence, coverage, size.bytes());
    Some(cause.map_or_else(|| format!("{got}; the cause is unknown"), |cause| format!("{got}: {cause}")))
}

fn cause(backing: Backing, evidence: &Evidence, coverage: &Coverage, page: Bytes) -> Option<String> {
    if let Some(why) = evidence.not_taken {
        return Some(why.to_owned());
    }
    if let Some(warning) = jvm_warning(evidence.output) {
        return Some(format!("the JVM printed '{warning}'"));
    }
    if coverage.resident < Bytes(4 * page.0) {
        return Some("the program uses less memory than 4 huge pages".to_owned());
    }
    match (backing, evidence.thp_fallbacks) {
        (Backing::Thp, Some(n)) if n > 0 => Some(format!(
            "{n} huge-page allocations failed during the run (thp_fault_fallback, whole machine); 'hugewise \
             check' shows how many huge pages are available"
        )),
        (Backing::Thp, _) if evidence.through_malloc => Some(NOT_IN_MAIN_ARENA.to_owned()),
        _ if evidence.through_malloc => Some(NOT_IN_POOL.to_owned()),
        _ => None,
    }
}

/// The first line in which a JVM warns that it got no large pages.
fn jvm_warning(output: &str) -> Option<&str> {
    let about_pages = |line: &&str| {
        let line = line.to_ascii_lowercase();
        line.contains("large pages")
            || line.contains("transparenthugepages")
            || line.contains("shared memory")
    };
    let failed =
        |line: &&str| line.contains("warning") || line.contains("Failed") || line.contains("disabled");
    output.lines().map(str::trim).find(|line| about_pages(line) && failed(line))
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use hugewise_linux::units::PageSize;

    use super::*;

    type TestResult = Result<(), Box<dyn Error>>;

    fn sizes() -> Result<PageSizes, Box<dyn Error>> {
        let (two, one): (PageSize, PageSize) = ("2m".parse()?, "1g".parse()?);
        Ok(PageSizes {
            base: "4k".parse()?,
            thp: Some(two),
            hugetlb: vec![two, one],
            default_hugetlb: Some(two),
        })
    }

    fn covered(resident: u64, huge: u64, size: &str) -> Result<Coverage, Box<dyn Error>> {
        let mut coverage = Coverage::none("a test");
        coverage.resident = Bytes(resident);
        coverage.huge.insert(size.parse()?, Bytes(huge));
        Ok(coverage)
    }

    fn judge(backing: &str, coverage: &Coverage, output: &str) -> Result<Option<String>, Box<dyn Error>> {
        let evidence = Evidence {
            coverage: Ok(coverage),
            output,
            thp_fallbacks: Some(7),
            not_taken: None,
            through_malloc: false,
        };
        Ok(fell_back(backing.parse()?, &evidence, &sizes()?, 0.8))
    }

    #[test]
    fn full_coverage_counts_and_half_does_not() -> TestResult {
        assert_eq!(judge("thp", &covered(1 << 30, 1 << 30, "2m")?, "")?, None);
        let half = judge("thp", &covered(1 << 30, 1 << 29, "2m")?, "")?;
        assert!(
            half.is_some_and(|why| why.contains("50 %") && why.contains("7 huge-page allocations failed"))
        );
        Ok(())
    }

    #[test]
    fn pages_of_another_size_are_not_those_asked_for() -> TestResult {
        assert!(judge("hugetlb:1g", &covered(1 << 30, 1 << 30, "2m")?, "")?.is_some());
        Ok(())
    }

    #[test]
    fn the_jvms_own_words_are_quoted() -> TestResult {
        let output =
            "hello\n[warning][pagesize] UseLargePages disabled, no large pages configured and available\n";
        let why = judge("hugetlb", &covered(1 << 30, 0, "2m")?, output)?;
        assert!(why.is_some_and(|why| why.contains("no large pages configured")));
        Ok(())
    }

    #[test]
    fn base_memory_that_is_huge_is_not_base() -> TestResult {
        assert!(judge("base", &covered(1 << 30, 1 << 29, "2m")?, "")?.is_some());
        assert_eq!(judge("base", &covered(1 << 30, 0, "2m")?, "")?, None);
        Ok(())
    }

    #[test]
    fn what_was_not_read_is_not_proven() -> TestResult {
        let evidence = Evidence {
            coverage: Err("no smaps"),
            output: "",
            thp_fallbacks: None,
            not_taken: None,
            through_malloc: true,
        };
        for backing in [Backing::Base, Backing::Thp] {
            let why = fell_back(backing, &evidence, &sizes()?, 0.8);
            assert!(why.is_some_and(|why| why.contains("coverage unknown: no smaps")), "{backing}");
        }
        Ok(())
    }
}
