//! The caches of the CPU.

use crate::{root::Root, units::Bytes};

/// Size of the last-level cache that the first CPU uses, from sysfs; `None` if it is not reported.
///
/// `getconf LEVEL3_CACHE_SIZE` is not used: for AMD CPUs it reports the sum over all complexes.
#[must_use]
pub fn last_level_size(root: &Root) -> Option<Bytes> {
    let folder = "sys/devices/system/cpu/cpu0/cache";
    let indexes = root.list(folder).ok()?;
    let caches = indexes.iter().filter(|name| name.starts_with("index")).filter_map(|index| {
        let read = |file: &str| root.read(format!("{folder}/{index}/{file}")).ok();
        let level: u32 = read("level")?.trim().parse().ok()?;
        // In the form 32768K.
        Some((level, read("size")?.trim().parse().ok()?))
    });
    caches.max_by_key(|(level, _)| *level).map(|(_, size)| size)
}
