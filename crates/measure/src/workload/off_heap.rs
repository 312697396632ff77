//! Memory outside the Java heap: its backing is set through the C library's malloc.

use hugewise_evidence::observation::RegionOfInterest;
use hugewise_linux::{reading::Reason, units::Bytes};
use hugewise_plan::malloc::{MallocSettings, OffHeap};

use super::{Conditions, Prepared, other};

/// Sets the backing of malloc'd memory in a prepared `java` command, with the pool that it needs.
pub(super) fn prepare(
    prepared: &mut Prepared,
    off_heap: OffHeap,
    conditions: &Conditions,
) -> Result<(), Reason> {
    if !matches!(prepared.region, RegionOfInterest::JavaHeap(_)) {
        return Reason::err(
            "a JVM before JDK 9 does not report where its heap is, so the coverage outside it is unknown",
        );
    }
    let backing = off_heap.into();
    let settings = MallocSettings::glibc(backing, conditions.sizes)?;
    if let Some((size, demand)) = other::pool_demand(backing, conditions, other::ROUNDING) {
        *prepared.pools.entry(size).or_insert(Bytes::ZERO) += demand;
    }
    prepared.notes.push(other::described(&settings));
    prepared.launch.environment.extend(other::environment(&settings));
    prepared.launch.thp_disabled &= off_heap != OffHeap::Thp;
    Ok(())
}
