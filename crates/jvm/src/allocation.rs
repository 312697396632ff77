//! The memory that a JVM allocates in Eden, from its performance counters.

use crate::performance_counters::PerformanceCounters;

/// Eden at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Eden {
    young_collections: i64,
    /// Bytes. G1 before JDK 22 adds 5 %, by which Eden can grow while the GC locker is held.
    capacity: i64,
    /// Bytes in use. G1 updates it with each region, the other collectors of JDK 24 and later at collections only.
    used: i64,
}

impl Eden {
    /// `None` if the collector has no Eden: Serial, Parallel and G1 have one, and two survivor spaces.
    fn of(counters: &PerformanceCounters) -> Option<Eden> {
        if counters.get("sun.gc.generation.0.spaces") != Some(3) {
            return None;
        }
        Some(Eden {
            young_collections: counters.get("sun.gc.collector.0.invocations")?,
            capacity: counters.get("sun.gc.generation.0.space.0.capacity")?,
            used: counters.get("sun.gc.generation.0.space.0.used")?,
        })
    }
}

/// Allocation in Eden since the first reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    last: Option<Eden>,
    /// Bytes that were allocated.
    pub bytes: i64,
}

impl Allocation {
    /// Adds what was allocated since the reading before: Eden was full at each young collection, with the capacity
    /// that it had then. Collections that begin earlier count as full ones.
    pub fn add(&mut self, counters: &PerformanceCounters) {
        let Some(now) = Eden::of(counters) else { return };
        if let Some(last) = self.last {
            let collections = now.young_collections.saturating_sub(last.young_collections).max(0);
            let full = collections.saturating_mul(last.capacity);
            self.bytes = self.bytes.saturating_add(full).saturating_add(now.used).saturating_sub(last.used);
        }
        self.last = Some(now);
    }

    /// Number of young collections since the start of the JVM; `None` if the collector has no Eden.
    pub fn young_collections(&self) -> Option<i64> {
        self.last.map(|eden| eden.young_collections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(spaces: i64, young_collections: i64, capacity: i64, used: i64) -> PerformanceCounters {
        [
            ("sun.gc.generation.0.spaces", spaces),
            ("sun.gc.collector.0.invocations", young_collections),
            ("sun.gc.generation.0.space.0.capacity", capacity),
            ("sun.gc.generation.0.space.0.used", used),
        ]
        .into_iter()
        .collect()
    }

    #[test]
    fn full_edens_are_added_and_what_is_in_use() {
        let mut allocation = Allocation::default();
        assert_eq!(allocation.young_collections(), None);
        for (young_collections, capacity, used, bytes) in
            [(7, 100, 40, 0), (7, 100, 90, 50), (8, 200, 10, 70), (10, 200, 0, 460), (10, 200, 0, 460)]
        {
            allocation.add(&counters(3, young_collections, capacity, used));
            assert_eq!((allocation.bytes, allocation.young_collections()), (bytes, Some(young_collections)));
        }
    }

    #[test]
    fn a_collector_without_eden_has_no_allocation() {
        let mut allocation = Allocation::default();
        // Generational ZGC has a young generation of one space.
        allocation.add(&counters(1, 7, 100, 40));
        allocation.add(&PerformanceCounters::default());
        assert_eq!(allocation.young_collections(), None);
    }
}
