//! Memory outside the Java heap: its backing is set through the C library's malloc.

use hugewise_linux::{hugepages::backing::Backing, units::Bytes};
use hugewise_plan::malloc::{MallocSettings, OffHeap};

use super::{Conditions, Prepared, other};

/// Sets the backing of malloc'd memory in a prepared `java` command, with the pool that it needs.
pub(super) fn prepare(prepared: &mut Prepared, off_heap: OffHeap, conditions: &Conditions) {
    let settings = match off_heap {
        OffHeap::Thp => MallocSettings::glibc_thp(),
        OffHeap::Hugetlb => {
            if let Some((size, demand)) = other::pool_demand(Backing::Hugetlb(None), conditions) {
                *prepared.pools.entry(size).or_insert(Bytes::ZERO) += demand;
            }
            MallocSettings::glibc_hugetlb(None)
        }
    };
    for (name, value) in settings.variables(&|_| None) {
        prepared.notes.push(format!("{name}={value}"));
    }
    let variables = settings.variables(&|name| std::env::var(name).ok());
    let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), Some(value.into())));
    prepared.launch.environment.extend(variables);
    prepared.launch.thp_disabled &= off_heap != OffHeap::Thp;
}
