//! The backing: how memory is requested.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::units::{PageSize, SizeError};

/// How memory is requested: `base`, `thp`, `hugetlb[:SIZE]` or `shm[:SIZE]`.
///
/// Without SIZE, `hugetlb` and `shm` mean the machine's default huge page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backing {
    /// Base pages only: THP is disabled for the memory.
    Base,
    /// Transparent huge pages, requested by `madvise`.
    Thp,
    /// Hugetlb pages from a pool, by `mmap`.
    Hugetlb(Option<PageSize>),
    /// Hugetlb pages from a pool, by SysV shared memory.
    Shm(Option<PageSize>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackingError {
    #[error("'{0}' is not a backing: use base, thp, hugetlb[:SIZE] or shm[:SIZE], like hugetlb:1GiB")]
    Unknown(String),
    /// A size with `base` or `thp`.
    #[error("'{0}': only hugetlb and shm take a page size")]
    NoSizeHere(String),
    /// The text after the colon is not a page size.
    #[error("'{0}': {1}")]
    Size(String, SizeError),
}

impl Backing {
    /// True for pages from a hugetlb pool.
    pub fn is_explicit(self) -> bool {
        matches!(self, Backing::Hugetlb(_) | Backing::Shm(_))
    }

    /// The page size in the text; `None` without one.
    pub fn named_size(self) -> Option<PageSize> {
        match self {
            Backing::Hugetlb(size) | Backing::Shm(size) => size,
            Backing::Base | Backing::Thp => None,
        }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Backing::Base => "base",
            Backing::Thp => "thp",
            Backing::Hugetlb(_) => "hugetlb",
            Backing::Shm(_) => "shm",
        };
        match self.named_size() {
            Some(size) => f.pad(&format!("{word}:{size}")),
            None => f.pad(word),
        }
    }
}

impl FromStr for Backing {
    type Err = BackingError;

    fn from_str(text: &str) -> Result<Backing, BackingError> {
        let (word, size) = match text.split_once(':') {
            Some((word, size)) => {
                (word, Some(size.parse().map_err(|e| BackingError::Size(text.to_owned(), e))?))
            }
            None => (text, None),
        };
        match (word, size) {
            ("base", None) => Ok(Backing::Base),
            ("thp", None) => Ok(Backing::Thp),
            ("base" | "thp", Some(_)) => Err(BackingError::NoSizeHere(text.to_owned())),
            ("hugetlb", size) => Ok(Backing::Hugetlb(size)),
            ("shm", size) => Ok(Backing::Shm(size)),
            _ => Err(BackingError::Unknown(text.to_owned())),
        }
    }
}

impl Serialize for Backing {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Backing {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Backing, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_backing_survives_print_and_parse() {
        for text in ["base", "thp", "hugetlb", "hugetlb:2MiB", "hugetlb:1GiB", "shm", "shm:1GiB"] {
            assert_eq!(text.parse::<Backing>().map(|b| b.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn a_wrong_backing_says_what_would_be_right() {
        for (text, says) in [
            ("hugepages", "use base, thp, hugetlb[:SIZE] or shm[:SIZE]"),
            ("thp:2m", "only hugetlb and shm take a page size"),
            ("hugetlb:3m", "power of two"),
            ("hugetlb:", "is not a size"),
        ] {
            let error = text.parse::<Backing>().map_err(|e| e.to_string());
            assert!(error.as_ref().is_err_and(|e| e.contains(says)), "{text}: {error:?}");
        }
    }
}
