//! Coverage of addresses of this process.

use std::{fs::File, io, ops::Range};

use hugewise_kernel::{
    coverage::Coverage,
    root::Root,
    smaps::{self, Vma},
    sys::pagemap,
    units::{Bytes, PageSize},
};

/// Where [`scan`] reads.
pub(crate) const SCAN: &str = "PAGEMAP_SCAN of /proc/self/pagemap";

/// What the page table holds; `size` is that of the huge pages there may be. Before Linux 6.7 an error.
pub(crate) fn scan(addresses: Range<u64>, size: Option<PageSize>) -> io::Result<Coverage> {
    let scan = pagemap::scan(&File::open("/proc/self/pagemap")?, addresses)?;
    let mut seen = Coverage::none(SCAN);
    seen.resident = scan.present;
    if let (Some(size), true) = (size, scan.huge > Bytes::ZERO) {
        seen.huge.insert(size, scan.huge);
    }
    Ok(seen)
}

/// The same by the kernel's own sums, which there are of whole mappings only.
pub(crate) fn of_mappings(addresses: Range<u64>, thp_size: Option<PageSize>) -> Result<Coverage, String> {
    let vmas = mappings(&addresses)?;
    if vmas.iter().any(|vma| vma.addresses.start < addresses.start || addresses.end < vma.addresses.end) {
        return Err("the kernel merged the region with a neighbour, and is too old (before \
                    Linux 6.7) to scan a part of a mapping"
            .to_owned());
    }
    Ok(smaps::coverage(&vmas, thp_size))
}

/// What is mapped at any of these addresses.
pub(crate) fn mappings(addresses: &Range<u64>) -> Result<Vec<Vma>, String> {
    let vmas = smaps::read(&Root::live(), "self").map_err(|error| error.to_string())?;
    let inside = |vma: &Vma| vma.addresses.start < addresses.end && addresses.start < vma.addresses.end;
    Ok(vmas.into_iter().filter(inside).collect())
}
