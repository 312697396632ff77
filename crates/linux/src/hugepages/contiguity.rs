//! The number of available huge pages: free memory counts only if it is contiguous.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    hugepages::movable_blocks::{self, Blocks},
    reading::Reading,
    root::{ReadError, Root},
    units::{Bytes, PageSize, Pages},
};

/// Path of the free blocks, see `Documentation/filesystems/proc.rst`.
pub const BUDDYINFO: &str = "proc/buddyinfo";

/// Maximum memory of a machine whose page frames are scanned without a request; larger scans take seconds.
pub const MAX_UNREQUESTED_SCAN_BYTES: Bytes = Bytes(256 << 30);

/// The available huge pages by size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contiguity {
    /// Free memory in the blocks listed by /proc/buddyinfo.
    #[serde(rename = "listed_bytes")]
    pub listed: Reading<Bytes>,
    /// Free memory outside the listed blocks: per-CPU page lists, and memory that the kernel has not
    /// initialised or accepted yet. It may contain more huge pages.
    #[serde(rename = "unlisted_bytes")]
    pub unlisted: Reading<Bytes>,
    /// One entry per page size, the smallest first.
    pub sizes: Vec<AvailablePages>,
}

/// The available pages of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AvailablePages {
    /// The page size.
    #[serde(rename = "page_size_bytes")]
    pub page_size: PageSize,
    /// Pages available without compaction: a lower bound.
    pub at_once: Reading<Pages>,
    /// Pages available after compaction, without reclaim: an upper bound.
    pub at_most: Reading<Pages>,
    /// Blocks by content, for a page size larger than any block in /proc/buddyinfo; `null` for other sizes.
    pub blocks: Option<Reading<Blocks>>,
}

/// When to scan every page frame, for page sizes larger than any block in /proc/buddyinfo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    Never,
    /// On machines where it takes at most a few seconds.
    IfQuick,
    Deep,
}

impl Contiguity {
    /// Whether only a scan of every page frame finds the available pages of this size.
    pub fn needs_scan(&self, size: PageSize) -> bool {
        self.sizes.iter().any(|pages| pages.page_size == size && pages.blocks.is_some())
    }
}

/// The free blocks of one zone.
pub(crate) struct Zone {
    /// `Node 0, zone Normal`, with single blanks, as in /proc/zoneinfo.
    pub(crate) name: String,
    /// Number of blocks by order.
    counts: Vec<u64>,
}

/// Reads the available pages of each of `sizes`. `total` and `free` are the machine's memory.
pub fn read(
    root: &Root,
    base: &Reading<PageSize>,
    sizes: &[PageSize],
    total: &Reading<Bytes>,
    free: &Reading<Bytes>,
    scan: Scan,
) -> Contiguity {
    let zones = Reading::from(root.read(BUDDYINFO).and_then(|text| parse(root, &text)));
    let base_and_zones = match (base, &zones) {
        (Reading::Known(base), Reading::Known(zones)) => Ok((*base, zones)),
        (Reading::Unknown { unknown }, _) | (_, Reading::Unknown { unknown }) => Err(unknown),
    };
    let listed: Reading<Bytes> =
        base_and_zones.map(|(base, zones)| zones.iter().map(|zone| zone.bytes(base)).sum()).into();
    let unlisted =
        listed.clone().and_then(|listed| free.clone().into_result().map(|free| free.saturating_sub(listed)));
    let scan_frames = |base, size| match total {
        _ if scan == Scan::Never => Reading::unknown("the page frames were not scanned"),
        Reading::Known(total) if *total > MAX_UNREQUESTED_SCAN_BYTES && scan == Scan::IfQuick => {
            Reading::unknown(format!(
                "machines with more than {MAX_UNREQUESTED_SCAN_BYTES} are scanned only with --deep"
            ))
        }
        _ => movable_blocks::scan(root, base, size).map_err(|error| explain(&error)).into(),
    };
    let sizes = sizes.iter().map(|&page_size| {
        let at_most = free.clone().map(|free| free.whole_pages(page_size));
        let at_once = match base_and_zones {
            Err(reason) => Reading::unknown(reason),
            Ok((base, zones)) => match listed_pages(zones, base, page_size) {
                Some(at_once) => Reading::Known(at_once),
                None => return beyond_the_list(page_size, at_most, scan_frames(base, page_size)),
            },
        };
        AvailablePages { page_size, at_once, at_most, blocks: None }
    });
    Contiguity { sizes: sizes.collect(), listed, unlisted }
}

/// Pages of a size larger than any listed block.
fn beyond_the_list(page_size: PageSize, bound: Reading<Pages>, blocks: Reading<Blocks>) -> AvailablePages {
    let at_most = match &blocks {
        Reading::Known(b) => bound.map(|bound| bound.min(b.free + b.movable + b.undecided)),
        Reading::Unknown { .. } => bound,
    };
    AvailablePages { page_size, at_once: blocks.clone().map(|b| b.free), at_most, blocks: Some(blocks) }
}

fn explain(error: &ReadError) -> String {
    match error {
        ReadError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            format!("{error}: reading the flags of page frames needs CAP_SYS_ADMIN")
        }
        _ => error.to_string(),
    }
}

/// Free pages of `size` in the listed blocks; `None` if the size is larger than any block.
fn listed_pages(zones: &[Zone], base: PageSize, size: PageSize) -> Option<Pages> {
    let order = size.log2().checked_sub(base.log2())? as usize;
    let listed = zones.iter().any(|zone| zone.counts.len() > order);
    listed.then(|| zones.iter().map(|zone| Pages(zone.pages(order))).sum())
}

impl Zone {
    /// Free pages of this order.
    pub(crate) fn pages(&self, order: usize) -> u64 {
        let larger = self.counts.iter().enumerate().skip(order);
        larger
            .map(|(of, &count)| 1u64.checked_shl((of - order) as u32).map_or(0, |n| count.saturating_mul(n)))
            .fold(0, u64::saturating_add)
    }

    fn bytes(&self, base: PageSize) -> Bytes {
        Pages(self.pages(0)) * base
    }
}

/// `Node 0, zone   Normal   3270   1488 …`: the number of free blocks for each order from 0.
pub(crate) fn parse(root: &Root, text: &str) -> Result<Vec<Zone>, ReadError> {
    let zone = |line: &str| -> Option<Zone> {
        let (node, zone) = line.split_once("zone")?;
        let mut words = zone.split_whitespace();
        let name = format!("{}, zone {}", node.trim().trim_end_matches(','), words.next()?);
        let counts: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
        (!counts.is_empty()).then_some(Zone { name, counts })
    };
    let zones = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    zones
        .map(|(n, line)| {
            zone(line).ok_or_else(|| root.content(BUDDYINFO, n + 1, "a zone with its free blocks", line))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tree;

    const TEXT: &str = "\
Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3 
Node 0, zone   Normal   3270   1488    852    529    258    177    166     65    207    135    265 
";

    fn machine(text: &str, base: &str) -> Contiguity {
        machine_after(Scan::IfQuick, text, base)
    }

    fn machine_after(scan: Scan, text: &str, base: &str) -> Contiguity {
        let (_dir, root) = tree(&[(BUDDYINFO, text)]);
        let base = Reading::from(base.parse());
        let sizes: Vec<PageSize> = ["2m", "1g"].iter().filter_map(|size| size.parse().ok()).collect();
        let free = Reading::Known(Bytes(3 << 30));
        read(&root, &base, &sizes, &free, &free, scan)
    }

    #[test]
    fn blocks_of_the_order_and_above_hold_huge_pages() {
        let seen = machine(TEXT, "4k");
        assert_eq!(seen.sizes[0].at_once, Reading::Known(Pages(1 + 2 * 3 + 135 + 2 * 265)));
        assert_eq!(seen.sizes[0].at_most, Reading::Known(Pages(1536)));
        assert!(seen.sizes[1].at_once.reason().is_some());
        assert_eq!(seen.sizes[1].at_most, Reading::Known(Pages(3)));
        assert!(seen.unlisted.known().is_some_and(|bytes| bytes.0 > 1 << 30));
    }

    #[test]
    fn only_pages_larger_than_any_block_need_a_scan() {
        let seen = machine_after(Scan::Never, TEXT, "4k");
        let needed: Vec<bool> = seen.sizes.iter().map(|pages| seen.needs_scan(pages.page_size)).collect();
        assert_eq!(needed, [false, true]);
        assert_eq!(seen.sizes[0], machine(TEXT, "4k").sizes[0]);
        assert_eq!(seen.sizes[1].at_once, Reading::unknown("the page frames were not scanned"));
    }

    #[test]
    fn the_order_follows_from_the_base_page() {
        assert_eq!(
            machine("Node 0, zone Normal 0 0 0 0 0 7\n", "64k").sizes[0].at_once,
            Reading::Known(Pages(7))
        );
    }

    #[test]
    fn a_broken_list_is_no_list() {
        for text in ["Node 0, zone", "Node 0, zone DMA", "Node 0, zone DMA x", "zon", "Node 0, zone DMA -1"] {
            let seen = machine(text, "4k");
            assert!(seen.sizes[0].at_once.reason().is_some() && seen.listed.reason().is_some(), "{text}");
        }
    }

    #[test]
    fn movable_blocks_bound_the_available_pages() {
        let blocks = Blocks { free: Pages(2), movable: Pages(1), undecided: Pages(1), blocked: Pages(9) };
        let (size, bound) = ("1g".parse::<PageSize>(), Reading::Known(Pages(8)));
        let seen = size.map(|size| beyond_the_list(size, bound, Reading::Known(blocks)));
        let seen = seen.map(|seen| (seen.at_once, seen.at_most));
        assert_eq!(seen, Ok((Reading::Known(Pages(2)), Reading::Known(Pages(4)))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_makes_it_panic(text in any::<String>(), numbers in any::<Vec<u64>>()) {
            let _ = machine(&text, "4k");
            let line: Vec<String> = numbers.iter().map(u64::to_string).collect();
            let _ = machine(&format!("Node 0, zone Normal {}", line.join(" ")), "4k");
        }
    }
}
