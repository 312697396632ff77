//! The number of huge pages available before the kernel has to reclaim or compact.
//!
//! In every zone it is bounded by the free blocks of that size and by the watermarks: below `low` and the
//! memory kept for other zones' requests (`protection`), kswapd begins to reclaim.

use std::collections::HashMap;

use crate::{
    hugepages::contiguity::{self, BUDDYINFO},
    root::{ReadError, Root},
    units::{Bytes, PageSize, Pages},
};

/// Path of the watermarks, see `Documentation/filesystems/proc.rst`.
pub const ZONEINFO: &str = "proc/zoneinfo";

/// Memory available without reclaim and compaction, of all zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headroom {
    /// Free blocks of the huge page size.
    pub blocks: Pages,
    /// Free memory above the watermarks, in blocks of any size.
    pub above_watermarks: Bytes,
    /// Huge pages available without reclaim and compaction.
    pub at_once: Pages,
}

/// Reads the headroom for pages of `size`.
pub fn read(root: &Root, base: PageSize, size: PageSize) -> Result<Headroom, ReadError> {
    let order = size.log2().saturating_sub(base.log2()) as usize;
    let zones = contiguity::parse(root, &root.read(BUDDYINFO)?)?;
    let spare = spare_pages(&root.read(ZONEINFO)?);
    let mut room = Headroom::default();
    for zone in zones {
        // In pages of `size`: larger blocks hold several.
        let blocks = zone.pages(order);
        let spare = spare.get(&zone.name).copied().unwrap_or(0);
        room.blocks += Pages(blocks);
        room.above_watermarks += Pages(spare) * base;
        room.at_once += Pages(blocks.min(spare >> order.min(63)));
    }
    Ok(room)
}

/// Base pages above the watermarks, by zone.
fn spare_pages(text: &str) -> HashMap<String, u64> {
    let mut all = HashMap::new();
    let (mut name, mut free, mut low) = (String::new(), 0u64, 0u64);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let number = |words: &mut dyn Iterator<Item = &str>| words.next().and_then(|n| n.parse().ok());
        match words.next() {
            Some("Node") => name = line.split_whitespace().collect::<Vec<_>>().join(" "),
            Some("pages") if words.next() == Some("free") => free = number(&mut words).unwrap_or(0),
            Some("low") => low = number(&mut words).unwrap_or(u64::MAX),
            // The last relevant line of a zone.
            Some("protection:") => {
                let numbers = words.filter_map(|word| word.trim_matches(['(', ',', ')']).parse::<u64>().ok());
                let kept = numbers.max().unwrap_or(0);
                all.insert(name.clone(), free.saturating_sub(low.saturating_add(kept)));
            }
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tree;

    const BLOCKS: &str = "\
Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3 
Node 0, zone   Normal   3270   1488    852    529    258    177    166     65    207    135    265 
";
    const ZONES: &str = "\
Node 0, zone      DMA
  pages free     3840
        min      10
        low      13
        high     16
        protection: (0, 3019, 24137, 24137)
Node 0, zone   Normal
  per-node stats
      nr_inactive_anon 1733
  pages free     1254336
        low      20179
        protection: (0, 0, 0, 0)
";

    fn room(blocks: &str, zones: &str) -> Option<Headroom> {
        let (_dir, root) = tree(&[(BUDDYINFO, blocks), (ZONEINFO, zones)]);
        let sizes = ("4k".parse().ok()?, "2m".parse().ok()?);
        read(&root, sizes.0, sizes.1).ok()
    }

    #[test]
    fn protected_memory_is_not_available() {
        let seen = room(BLOCKS, ZONES);
        assert_eq!(
            seen,
            Some(Headroom {
                blocks: Pages(7 + 135 + 2 * 265),
                above_watermarks: Bytes((1_254_336 - 20_179) << 12),
                at_once: Pages(135 + 2 * 265),
            })
        );
    }

    #[test]
    fn at_its_watermark_a_zone_has_no_room() {
        let low = ZONES.replace("1254336", "20690");
        assert_eq!(room(BLOCKS, &low).map(|room| room.at_once), Some(Pages(0)));
        assert_eq!(room(BLOCKS, &low.replace("20690", "20691")).map(|room| room.at_once), Some(Pages(1)));
        // A zone without known watermarks has no room.
        assert_eq!(room(BLOCKS, "").map(|room| room.at_once), Some(Pages(0)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_makes_it_panic(blocks in any::<String>(), zones in any::<String>(), n in any::<u64>()) {
            let _ = room(&blocks, &zones);
            let _ = room(BLOCKS, &zones);
            let _ = room(&format!("Node 0, zone Normal {n} {n} {n}"), &ZONES.replace("1254336", &n.to_string()));
        }
    }
}
