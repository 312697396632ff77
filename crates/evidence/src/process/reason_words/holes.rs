//! Aligned ranges that lack pages.

use hugewise_linux::action::Action;

use super::{Circumstances, Kind, PartCounts};

pub fn words(kind: Kind, counts: &PartCounts, pmd: &str, around: &Circumstances<'_>) -> String {
    let cause = match (kind, around.known.runtime) {
        (Kind::JvmLargePages, _) => "the JVM has not touched them yet, or has released them".to_owned(),
        (Kind::Malloc | Kind::Anonymous, Some(runtime)) => {
            format!("purged by the allocator, {} (MADV_DONTNEED), or never touched", runtime.name())
        }
        (Kind::Malloc, None) => {
            "purged by the allocator (malloc_trim, MADV_DONTNEED), or never touched".to_owned()
        }
        _ => "never touched, or released by the program (MADV_DONTNEED)".to_owned(),
    };
    let ranges = counts.ranges;
    let which = match ranges.sparse {
        1 => "1 aligned range of".to_owned(),
        many => format!("{many} aligned ranges of"),
    };
    format!(
        "huge pages are allowed here, but pages are missing in {which} {pmd}, {} in all: {cause}; a huge page that \
         loses some of its pages is split, and its other pages become base pages",
        ranges.missing
    )
}

/// The action that keeps the allocator from making holes; `None` if it has none, or the process has it already.
pub fn action(kind: Kind, around: &Circumstances<'_>) -> Option<Action> {
    match kind {
        Kind::Malloc | Kind::Anonymous => around.known.runtime?.no_purge(around.known.environment),
        _ => None,
    }
}
