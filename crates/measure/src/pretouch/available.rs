//! Checks that a size fits into free memory without reclaim or compaction.

use hugewise_linux::{
    proc::meminfo::Meminfo,
    reading::Reading,
    units::{Bytes, PageSize},
};

/// Memory that the experiment uses at the same time; pools keep their pages until its end.
pub(super) struct ConcurrentUse {
    /// Number of pools of different page sizes.
    pub pools: u64,
    /// Whether memory outside of pools is measured, too.
    pub others: bool,
    /// Whether JVMs are measured.
    pub jvm: bool,
}

/// Why a size does not fit into free memory; `None` if it fits.
pub(super) fn missing(
    bytes: Bytes,
    beside: &ConcurrentUse,
    memory: &Meminfo,
    floor: Bytes,
) -> Option<String> {
    let free = match &memory.free {
        Reading::Known(free) => *free,
        Reading::Unknown { unknown } => return Some(format!("free memory is unknown: {unknown}")),
    };
    let times = beside.pools + u64::from(beside.others);
    // Page tables and processes, and the memory of a JVM beside its heap.
    let more = Bytes(bytes.0 / 256) + Bytes(16 << 20) + Bytes(if beside.jvm { 512 << 20 } else { 0 });
    let needed = Bytes(bytes.0.saturating_mul(times)) + more;
    if needed + floor <= free {
        return None;
    }
    let each = match beside.pools {
        _ if times <= 1 => String::new(),
        1 => " (in a pool, and outside)".to_owned(),
        pools => format!(" (in each of {pools} pools{})", if beside.others { ", and outside" } else { "" }),
    };
    let cached = memory.available.known().and_then(|available| available.0.checked_sub(free.0));
    let cached = cached.filter(|cached| *cached > 0).map_or_else(String::new, |cached| {
        format!("; {} of page cache could be dropped first (/proc/sys/vm/drop_caches)", Bytes(cached))
    });
    Some(format!(
        "it needs {needed}{each}, and {floor} of the {free} free memory must stay free (--floor): reclaim would be \
         measured, too{cached}"
    ))
}

/// Why THP for a size would need compaction; `None` if not. `ready` is the memory that is free in whole
/// blocks of the size of a THP.
pub(super) fn scattered(bytes: Bytes, ready: Bytes, thp: PageSize) -> Option<String> {
    (bytes > ready).then(|| {
        format!(
            "only {ready} of free memory lie in whole blocks of {thp}: compaction for the rest would be measured, too \
             (write 1 to /proc/sys/vm/compact_memory first)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(free: Reading<Bytes>) -> Meminfo {
        Meminfo {
            total: Reading::Known(Bytes(32 << 30)),
            free,
            available: Reading::Known(Bytes(20 << 30)),
            page_tables: Reading::unknown("not asked"),
            swap_total: Reading::unknown("not asked"),
            swap_free: Reading::unknown("not asked"),
            commit_limit: Reading::unknown("not asked"),
            committed: Reading::unknown("not asked"),
            hugetlb: Reading::Known(Bytes::ZERO),
            anonymous_huge: Reading::unknown("not asked"),
            shared_huge: Reading::unknown("not asked"),
            file_huge: Reading::unknown("not asked"),
            default_size: Reading::unknown("not asked"),
            default_pool: Reading::unknown("not asked"),
        }
    }

    #[test]
    fn a_size_must_fit_beside_its_pools() {
        let both = ConcurrentUse { pools: 1, others: true, jvm: false };
        let free = memory(Reading::Known(Bytes(10 << 30)));
        let floor = Bytes(512 << 20);
        assert_eq!(missing(Bytes(4 << 30), &both, &free, floor), None);
        let why = missing(Bytes(5 << 30), &both, &free, floor).unwrap_or_default();
        assert!(
            why.contains("10.0GiB (in a pool, and outside)") && why.contains("10GiB of page cache"),
            "{why}"
        );
        let alone = ConcurrentUse { pools: 0, ..both };
        assert_eq!(missing(Bytes(9 << 30), &alone, &free, floor), None);
        assert!(missing(Bytes(9 << 30), &ConcurrentUse { jvm: true, ..alone }, &free, floor).is_some());
    }

    #[test]
    fn scattered_memory_is_reported() -> Result<(), Box<dyn std::error::Error>> {
        let thp = "2MiB".parse()?;
        assert_eq!(scattered(Bytes(4 << 20), Bytes(4 << 20), thp), None);
        assert!(scattered(Bytes(5 << 20), Bytes(4 << 20), thp).is_some_and(|why| why.contains("only 4MiB")));
        Ok(())
    }

    #[test]
    fn without_a_reading_nothing_is_risked() {
        let unknown = memory(Reading::unknown("no MemFree"));
        let beside = ConcurrentUse { pools: 0, others: true, jvm: false };
        assert!(
            missing(Bytes(1), &beside, &unknown, Bytes::ZERO).is_some_and(|why| why.contains("no MemFree"))
        );
    }
}
