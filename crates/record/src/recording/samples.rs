//! Samples of the machine and of the memory of processes.

use hugewise_evidence::heap;
use hugewise_jvm::regions::Heap;
use hugewise_linux::{
    hugepages::{base_page, pools, thp},
    proc::{meminfo, pressure, smaps, vmstat::VmStat},
    root::Root,
    sys::process::monotonic_ns,
};

use super::model::{Facts, HeapMemory, Machine, Memory, PoolSample};

/// Prefixes of the recorded counters of /proc/vmstat.
const COUNTERS: [&str; 9] = [
    "thp_",
    "compact_",
    "allocstall_",
    "pgmigrate_",
    "htlb_",
    "kcompactd_",
    "pgscan_direct",
    "pgsteal_direct",
    "drop_",
];

/// The machine at the start of a recording.
pub fn facts(root: &Root) -> Facts {
    Facts {
        kernel: root.value(hugewise_linux::facts::OSRELEASE, "a release").into(),
        cpus: root.value("sys/devices/system/cpu/online", "a list of CPUs").into(),
        base_page: base_page::read(root),
        meminfo: meminfo::read(root),
        pools: pools::read(root).into(),
        thp: thp::read(root),
    }
}

/// The counters of the machine.
pub fn machine(root: &Root) -> Machine {
    let vmstat = VmStat::read(root).unwrap_or_default();
    let kept = |(name, _): &(&str, u64)| COUNTERS.iter().any(|begin| name.starts_with(begin));
    let pools = pools::read(root).unwrap_or_default();
    Machine {
        ns: monotonic_ns(),
        vmstat: vmstat.iter().filter(kept).map(|(name, value)| (name.to_owned(), value)).collect(),
        pressure_some_ns: pressure::read(root)
            .ok()
            .and_then(|pressure| u64::try_from(pressure.some.as_nanos()).ok()),
        pools: pools
            .iter()
            .filter(|pool| pool.node.is_none())
            .map(|pool| PoolSample {
                page_size: pool.page_size,
                total: pool.total.0,
                free: pool.free.0,
                reserved: pool.reserved.map(|pages| pages.0),
            })
            .collect(),
        available_bytes: meminfo::read(root).available.known().copied(),
    }
}

/// The memory of a process, and of its `heap` if it was located. `None` if the process has ended, or may not
/// be read.
pub fn memory(root: &Root, pid: u32, heap: Option<&Heap>) -> Option<Memory> {
    let text = root.read(format!("proc/{pid}/smaps_rollup")).ok()?;
    let sums = smaps::parse(&text).ok()?.into_iter().next()?;
    Some(Memory {
        ns: monotonic_ns(),
        pid,
        resident_bytes: sums.rss + sums.hugetlb,
        thp_bytes: sums.thp,
        hugetlb_bytes: sums.hugetlb,
        heap: heap
            .and_then(|heap| heap::scan(root, pid, heap))
            .map(|scan| HeapMemory { resident_bytes: scan.present, huge_bytes: scan.huge }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_pools_are_added_to_what_is_resident() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir_all(folder.path().join("proc/7"))?;
        let text = "5581-7ffc ---p 00000000 00:00 0 [rollup]\nRss: 3072 kB\nAnonHugePages: 2048 kB\n\
                    Shared_Hugetlb: 1024 kB\nPrivate_Hugetlb: 4096 kB\n";
        std::fs::write(folder.path().join("proc/7/smaps_rollup"), text)?;
        let Some(seen) = memory(&Root::at(folder.path()), 7, None) else { unreachable!() };
        let kib = [seen.resident_bytes, seen.thp_bytes, seen.hugetlb_bytes].map(|bytes| bytes.0 >> 10);
        assert_eq!(kib, [8192, 2048, 5120]);
        assert_eq!(memory(&Root::at(folder.path()), 8, None), None);
        Ok(())
    }
}
