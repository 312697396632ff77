//! Decides quickly which of many patterns can match a line: by texts of which each match must contain one.

use std::{cmp::Reverse, collections::BTreeSet};

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind};
use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind};

/// Texts that a part of a pattern can stand for, at most; a part with more is searched by its neighbours.
const MAX_TEXTS: usize = 64;
/// Characters of a class that are texts of their own.
const MAX_CLASS: usize = 4;
/// Length in bytes from which all needles count as equally rare.
const LONG_ENOUGH: usize = 8;

/// The needles of a list of patterns.
pub(super) struct Needles {
    search: AhoCorasick,
    /// Index of the pattern of each needle.
    of: Vec<usize>,
}

impl Needles {
    /// `None` if a pattern is not valid, or if it can match without a fixed text of at least two bytes.
    pub fn new<'a>(patterns: impl Iterator<Item = &'a str>) -> Option<Needles> {
        let (mut of, mut needles) = (Vec::new(), Vec::new());
        for (index, pattern) in patterns.enumerate() {
            let needed = needed(&regex_syntax::parse(pattern).ok()?).filter(|texts| shortest(texts) >= 2)?;
            of.resize(of.len() + needed.len(), index);
            needles.extend(needed);
        }
        // Each line is searched: the fastest kind, of some MiB.
        let search = AhoCorasickBuilder::new()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(needles)
            .ok()?;
        Some(Needles { search, of })
    }

    /// Indices of the patterns that can match the line, in their order.
    pub fn candidates(&self, line: &str) -> BTreeSet<usize> {
        let found = self.search.find_overlapping_iter(line);
        found.filter_map(|needle| self.of.get(needle.pattern().as_usize()).copied()).collect()
    }

    /// Whether any pattern can match the line.
    pub fn has_candidate(&self, line: &str) -> bool {
        self.search.is_match(line)
    }
}

fn shortest(texts: &BTreeSet<String>) -> usize {
    texts.iter().map(String::len).min().unwrap_or_default()
}

/// Texts of which each match contains one, in lower case; `None` if there are none.
fn needed(hir: &Hir) -> Option<BTreeSet<String>> {
    let texts = match hir.kind() {
        HirKind::Capture(capture) => needed(&capture.sub)?,
        HirKind::Repetition(repetition) if repetition.min > 0 => needed(&repetition.sub)?,
        HirKind::Alternation(parts) => {
            parts.iter().map(needed).collect::<Option<Vec<_>>>()?.into_iter().flatten().collect()
        }
        HirKind::Concat(parts) => needed_of_any(parts)?,
        _ => exact(hir)?,
    };
    (shortest(&texts) > 0).then_some(texts)
}

/// The best texts of a part, or of neighbours that stand for few texts.
fn needed_of_any(parts: &[Hir]) -> Option<BTreeSet<String>> {
    let mut all = Vec::new();
    let mut run = BTreeSet::from([String::new()]);
    for part in parts {
        let part_texts = exact(part);
        let longer = part_texts.as_ref().and_then(|texts| joined(&run, texts));
        if longer.is_none() {
            all.push(std::mem::take(&mut run));
            all.extend(needed(part));
        }
        run = longer.or(part_texts).unwrap_or_else(|| BTreeSet::from([String::new()]));
    }
    all.push(run);
    all.into_iter()
        .filter(|texts| shortest(texts) > 0)
        .max_by_key(|texts| (shortest(texts).min(LONG_ENOUGH), Reverse(texts.len())))
}

/// All texts that a part stands for; `None` if they are too many.
fn exact(hir: &Hir) -> Option<BTreeSet<String>> {
    let texts = match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => BTreeSet::from([String::new()]),
        HirKind::Literal(literal) => {
            BTreeSet::from([String::from_utf8(literal.0.to_vec()).ok()?.to_ascii_lowercase()])
        }
        HirKind::Class(Class::Unicode(class)) => letters(class)?,
        HirKind::Class(Class::Bytes(class)) => letters(&class.to_unicode_class()?)?,
        HirKind::Capture(capture) => exact(&capture.sub)?,
        HirKind::Repetition(repetition) if (repetition.min, repetition.max) == (0, Some(1)) => {
            let mut texts = exact(&repetition.sub)?;
            texts.insert(String::new());
            texts
        }
        HirKind::Concat(parts) => {
            let begin = BTreeSet::from([String::new()]);
            parts.iter().try_fold(begin, |texts, part| joined(&texts, &exact(part)?))?
        }
        HirKind::Alternation(parts) => {
            parts.iter().map(exact).collect::<Option<Vec<_>>>()?.into_iter().flatten().collect()
        }
        HirKind::Repetition(_) => return None,
    };
    (texts.len() <= MAX_TEXTS).then_some(texts)
}

/// The letters of a small class, in lower case. Letters that only Unicode folds to one of ASCII (the sign of Kelvin)
/// are left out: no message has them.
fn letters(class: &ClassUnicode) -> Option<BTreeSet<String>> {
    let size: usize = class.ranges().iter().map(regex_syntax::hir::ClassUnicodeRange::len).sum();
    if size > MAX_CLASS {
        return None;
    }
    let all: Vec<char> = class.ranges().iter().flat_map(|range| range.start()..=range.end()).collect();
    let folds = |letter: &char| {
        all.iter().any(|one| one.is_ascii_alphabetic()) && "\u{212a}\u{17f}".contains(*letter)
    };
    Some(
        all.iter()
            .filter(|letter| !folds(letter))
            .map(|letter| letter.to_ascii_lowercase().to_string())
            .collect(),
    )
}

/// Each of `texts` followed by each of `next`; `None` if they are too many.
fn joined(texts: &BTreeSet<String>, next: &BTreeSet<String>) -> Option<BTreeSet<String>> {
    (texts.len() * next.len() <= MAX_TEXTS)
        .then(|| texts.iter().flat_map(|text| next.iter().map(move |more| format!("{text}{more}"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needles_of(pattern: &str) -> Option<Vec<String>> {
        Some(needed(&regex_syntax::parse(pattern).ok()?)?.into_iter().collect())
    }

    #[test]
    fn the_needles_of_a_pattern_are_in_each_match() {
        let cases: [(&str, Option<&[&str]>); 9] = [
            (r"EAL: \d+ pages", Some(&[" pages"])),
            (r"huge ?pages", Some(&["huge pages", "hugepages"])),
            (r"(?i)THP off", Some(&["thp off"])),
            (r"cannot|unable to (?:map|lock)", Some(&["cannot", "unable to lock", "unable to map"])),
            (r"a(?:bc)+d", Some(&["bc"])),
            (r"x{0,3}", None),
            (r"long enough|\d", None),
            (r"[a-z]+", None),
            (r"(?:large|huge)_pages=\w", Some(&["huge_pages=", "large_pages="])),
        ];
        for (pattern, needles) in cases {
            let found = needles_of(pattern);
            assert_eq!(
                found.as_ref().map(|all| all.iter().map(String::as_str).collect()),
                needles.map(<[&str]>::to_vec),
                "{pattern}"
            );
        }
    }

    #[test]
    fn candidates_are_in_the_order_of_the_patterns() {
        let needles = Needles::new(["b\\d", "MAP_HUGE", "abc"].into_iter());
        assert!(needles.is_none(), "a needle of one byte");
        let needles = Needles::new(["bc\\d", "MAP_HUGE", "(?i)abc"].into_iter()).expect("three needles");
        assert_eq!(needles.candidates("map_huge ABC"), BTreeSet::from([0, 1, 2]));
        assert!(!needles.has_candidate("nothing"));
    }
}
