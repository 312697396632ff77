//! Words of kernel and vendors about huge pages: a line that has one is about huge pages, known or not.

use std::sync::LazyLock;

use regex::Regex;

use super::needles::Needles;

/// Words that occur in messages about huge pages, and in few others.
const WORDS: &str = r"(?ix)
    (?-u:\b|_) huge [\x20_-]? (?: tlb | tlbfs | pages? ) | hugepag | large [\x20_-]? pages? (?-u:\b) | largepage | super [\x20_-]? pages? (?-u:\b)
    | hugetlb | transparent [\x20_-]? huge | (?-u:\b) THPs? (?-u:\b) | khugepaged
    | large_pages? | (?-u:\b) huge [\x20-] (?: memory | mappings? | alloc ) | (?-u:\b) huge (?: adm | ctl | edit ) (?-u:\b) | hugif (?: y | ied )
    | page \x20? size [^0-9A-Za-z]{1,2} (?: 2097152 | 1073741824 | 536870912 ) (?-u:\b)
    | (?-u:\b|_) huge_ (?: pmd | pud | pte | zero | memory | anon | file ) | hugepmd | (?-u:\b) m?thp_[a-z] | memfs_malloc
    | MAP_HUGE | SHM_HUGE | MADV_(?:NO)?HUGEPAGE | MADV_COLLAPSE
    | (?-u:\b) (?:2|4|16|32|512)\x20?Mi?B? [\x20-] pages? (?-u:\b) | (?-u:\b) (?:1|2|16)\x20?Gi?B? [\x20-] pages? (?-u:\b)
    | (?-u:\b) (?:2048|1048576|524288)\x20?[kK]i?B? \x20? pages? (?-u:\b)
    | page \x20? size [^0-9A-Za-z]{1,2} (?:2|1024)\x20?Mi?B? (?-u:\b) | page \x20? size [^0-9A-Za-z]{1,2} 1\x20?Gi?B? (?-u:\b)
    | gigantic [\x20_-]? pages?
    # In other languages; 最大页数 is a number of pages of a book.
    | (?:^|[^最]) 大 (?:内存)? [页頁] | 巨[页頁] | (?:ヒュージ|ラージ|巨大) ・? ページ | (?:대형|거대|huge) \x20? 페이지
    | (?:огромн|больш)(?:ые|ых|ым|ыми|их|ие|им) \x20 страниц | (?:величезн|гігантськ)\S{1,3} \x20 сторін
    | pages \x20 (?:huge|énormes) | grandes \x20 pages | pagin[ae] \x20 (?:huge|enormi|enorme) | páginas \x20 (?:huge|enormes|gigantes)
    | (?:riesige|große) [nr]? \x20 (?:Speicher)? seiten (?-u:\b) | stora \x20 sidor | უზარმაზარ \S* \x20 გვერდ
";

/// Options and variables that only name huge pages.
const OPTIONS: &str = r"(?x)
    -XX:[+-]?\w+(?:=\S+)? | -Xlp\S* | (?-u:\b)MemoryTHP=\w+ | (?-u:\b)AnonHugePages(?-u:\b) | --use-largepages(?:=\w+)?
";

struct Patterns {
    needles: Needles,
    words: Regex,
    options: Regex,
}

static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
    let needles = Needles::new([WORDS].into_iter())?;
    Some(Patterns { needles, words: Regex::new(WORDS).ok()?, options: Regex::new(OPTIONS).ok()? })
});

/// The first word about huge pages, options of command lines aside; `None` if the line is not about them.
pub(super) fn find(line: &str) -> Option<String> {
    let patterns = PATTERNS.as_ref().filter(|patterns| patterns.needles.has_candidate(line))?;
    patterns.words.find(line)?;
    let said = patterns.options.replace_all(line, "");
    Some(patterns.words.find(&said)?.as_str().trim_matches('_').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_no_messages() {
        assert!(PATTERNS.is_some());
        for line in [
            "Command Line: -XX:+UseLargePages -XX:LargePageSizeInBytes=2m -jar a.jar",
            "a large page_view",
            "thping",
            "查询最大页数",
        ] {
            assert_eq!(find(line), None, "{line}");
        }
        for line in [
            "no HugePages left",
            "cannot use large pages",
            "THP: off",
            "mmap(MAP_HUGETLB) failed",
            "needs 2 MB pages",
            "DB2_LARGE_PAGE_MEM=DB is set",
            "couldn't mmap 4.0 GiB of huge memory",
            "hugeadm: ERROR: Unable to set pool to 512 pages",
            "hpa: madvise hugify failed",
            "soft lockup: do_huge_pmd_anonymous_page",
            "registration failed: page size 2097152 pages not contiguous",
            "expected at least 16 gigantic pages, but there are 0",
            "透明大页已启用，建议关闭",
            "大頁不足",
            "ヒュージページを超えた場合に発生します",
            "не хватает огромных страниц",
            "les pages énormes ne sont pas disponibles",
        ] {
            assert!(find(line).is_some(), "{line}");
        }
    }
}
