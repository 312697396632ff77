//! A machine for tests.

use std::error::Error;

use hugewise_linux::{
    facts::Facts,
    hugepages::{contiguity::Scan, page_sizes::PageSizes},
    testing::tree,
    units::PageSize,
};

const POOL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";

/// A machine with a pool of 2 MiB pages.
pub fn machine(total: u64, free: u64) -> Result<(Facts, PageSizes), Box<dyn Error>> {
    let (total, free) = (format!("{total}\n"), format!("{free}\n"));
    let files = ["nr_hugepages", "free_hugepages", "resv_hugepages", "surplus_hugepages"]
        .map(|name| format!("{POOL}/{name}"));
    let overcommit = format!("{POOL}/nr_overcommit_hugepages");
    let (_dir, root) = tree(&[
        ("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 6000000 kB\nMemAvailable: 6000000 kB\n"),
        (&files[0], &total),
        (&files[1], &free),
        (&files[2], "0\n"),
        (&files[3], "0\n"),
        (&overcommit, "0\n"),
    ]);
    let size: PageSize = "2m".parse()?;
    let hugetlb = vec![size, "1g".parse()?];
    let sizes = PageSizes { base: "4k".parse()?, thp: Some(size), hugetlb, default_hugetlb: Some(size) };
    Ok((Facts::gather(&root, Scan::IfQuick), sizes))
}
