//! Coverage: the share of a region's resident bytes on each page size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, PageSize};

/// Adds bytes on pages of `size`; zero bytes get no entry.
pub(crate) fn add_bytes(to: &mut BTreeMap<PageSize, Bytes>, size: PageSize, bytes: Bytes) {
    if bytes > Bytes::ZERO {
        *to.entry(size).or_default() += bytes;
    }
}

/// Coverage of a region, as read from the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Resident bytes on pages of any size.
    pub resident: Bytes,
    /// Resident bytes on huge pages, by page size. Readings of smaps count mTHP as base pages.
    pub huge: BTreeMap<PageSize, Bytes>,
    /// Source of the reading.
    pub source: String,
}

impl Coverage {
    /// A coverage without resident bytes.
    pub fn none(source: &str) -> Coverage {
        Coverage { resident: Bytes::ZERO, huge: BTreeMap::new(), source: source.to_owned() }
    }

    /// Share on huge pages of any size, 0 to 1; `None` if nothing is resident.
    pub fn share(&self) -> Option<f64> {
        self.huge.values().copied().sum::<Bytes>().share_of(self.resident)
    }

    /// Share on pages of one size, 0 to 1; `None` if nothing is resident.
    pub fn share_on(&self, size: PageSize) -> Option<f64> {
        self.huge.get(&size).copied().unwrap_or_default().share_of(self.resident)
    }

    /// Adds the coverage of another part of the region.
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
