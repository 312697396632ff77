//! Coverage: the share of a region's resident bytes on each page size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, PageSize};

/// What the kernel really gave to a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Bytes that are present, on pages of any size.
    pub resident: Bytes,
    /// Of those, the bytes on huge pages, by their size. Smaller THPs (mTHP) are not told apart
    /// from base pages by this reading.
    pub huge: BTreeMap<PageSize, Bytes>,
    /// Where it was read.
    pub source: String,
}

impl Coverage {
    /// Nothing resident, to be added to.
    #[must_use]
    pub fn none(source: &str) -> Coverage {
        Coverage { resident: Bytes::ZERO, huge: BTreeMap::new(), source: source.to_owned() }
    }

    /// The share on huge pages of any size, 0 to 1; nothing where nothing is resident.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        self.huge.values().copied().sum::<Bytes>().share_of(self.resident)
    }

    /// The share on pages of one size.
    #[must_use]
    pub fn share_on(&self, size: PageSize) -> Option<f64> {
        self.huge.get(&size).copied().unwrap_or_default().share_of(self.resident)
    }

    /// Adds what was read of another part of the region.
    pub fn add(&mut self, other: &Coverage) {
        self.resident += other.resident;
        for (size, bytes) in &other.huge {
            *self.huge.entry(*size).or_default() += *bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::reading::Reading;

    #[test]
    fn a_coverage_survives_json_as_a_reading() -> Result<(), Box<dyn Error>> {
        let mut coverage = Coverage::none("a test");
        coverage.huge.insert("2m".parse()?, Bytes(4 << 20));
        let reading = Reading::Known(coverage);
        let text = serde_json::to_string(&reading)?;
        assert_eq!(serde_json::from_str::<Reading<Coverage>>(&text)?, reading);
        let unknown: Reading<Coverage> = Reading::unknown("no pagemap");
        assert_eq!(serde_json::from_str::<Reading<Coverage>>(&serde_json::to_string(&unknown)?)?, unknown);
        Ok(())
    }
}
