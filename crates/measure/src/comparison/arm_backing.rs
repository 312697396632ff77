//! The backing of an arm: of the Java heap and of the memory outside it, or of all memory of another program.

use std::{fmt, str::FromStr};

use hugewise_linux::{hugepages::backing::Backing, reading::Reason};
use hugewise_plan::malloc::OffHeap;
use serde::{Deserialize, Serialize};

/// Between the two backings in the text.
const SEPARATOR: &str = " + off-heap ";

/// The backing of an arm, as text `thp` or `base + off-heap thp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ArmBacking {
    /// Backing of the Java heap; of all memory if the program is not a JVM.
    pub backing: Backing,
    /// Backing of memory outside the Java heap; `None` if it is not set.
    pub off_heap: Option<OffHeap>,
}

impl From<Backing> for ArmBacking {
    fn from(backing: Backing) -> ArmBacking {
        ArmBacking { backing, off_heap: None }
    }
}

impl From<ArmBacking> for String {
    fn from(arm: ArmBacking) -> String {
        arm.to_string()
    }
}

impl TryFrom<String> for ArmBacking {
    type Error = Reason;

    fn try_from(text: String) -> Result<ArmBacking, Reason> {
        text.parse()
    }
}

impl fmt::Display for ArmBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.off_heap {
            Some(off_heap) => f.pad(&format!("{}{SEPARATOR}{off_heap}", self.backing)),
            None => self.backing.fmt(f),
        }
    }
}

impl FromStr for ArmBacking {
    type Err = Reason;

    fn from_str(text: &str) -> Result<ArmBacking, Reason> {
        let (backing, off_heap) = match text.split_once(SEPARATOR) {
            Some((backing, off_heap)) => (backing, Some(off_heap.parse()?)),
            None => (text, None),
        };
        Ok(ArmBacking { backing: backing.parse()?, off_heap })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back() -> Result<(), Reason> {
        for text in ["base", "hugetlb:1GiB", "thp + off-heap thp", "base + off-heap hugetlb"] {
            assert_eq!(text.parse::<ArmBacking>()?.to_string(), text);
        }
        assert!("thp + off-heap 4k".parse::<ArmBacking>().is_err());
        Ok(())
    }
}
