//! Divides a range of addresses among threads, never within a huge page.

use std::ops::Range;

use hugewise_linux::units::Bytes;

/// Minimum number of chunks per thread, so that all threads finish at about the same time.
const MIN_CHUNKS_PER_THREAD: u64 = 16;
/// Default chunk size: takes much longer than a system call, but allows progress reports and cancellation.
const DEFAULT_CHUNK_BYTES: Bytes = Bytes(4 << 20);

/// A range of addresses, cut at multiples of the chunk size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    addresses: Range<u64>,
    size: Bytes,
}

impl Chunks {
    /// Cuts `addresses` for `threads` threads.
    ///
    /// A chunk is a multiple of `grain`: the largest page in the range or the memory mapped by one page
    /// table, so that no two threads share a page or a page table. `asked` is the requested chunk size; it is
    /// reduced until every thread has several chunks, and rounded up to the grain.
    #[must_use]
    pub fn cut(addresses: Range<u64>, grain: Bytes, asked: Option<Bytes>, threads: usize) -> Chunks {
        let grain = grain.0.max(1);
        let length = addresses.end.saturating_sub(addresses.start);
        let fair = length / MIN_CHUNKS_PER_THREAD.saturating_mul(threads.max(1) as u64);
        let wanted = asked.unwrap_or(DEFAULT_CHUNK_BYTES).0.min(fair);
        let size = Bytes((wanted / grain * grain).max(grain));
        Chunks { addresses: addresses.start..addresses.start + length, size }
    }

    /// Bytes per chunk; the first and the last chunk may be shorter.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.size
    }

    #[must_use]
    pub fn length(&self) -> Bytes {
        Bytes(self.addresses.end - self.addresses.start)
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        if self.addresses.is_empty() {
            return 0;
        }
        (self.addresses.end - 1) / self.size.0 - self.addresses.start / self.size.0 + 1
    }

    #[must_use]
    pub fn get(&self, index: u64) -> Option<Range<u64>> {
        if index >= self.count() {
            return None;
        }
        let edge = |index: u64| (self.addresses.start / self.size.0 + index).saturating_mul(self.size.0);
        Some(edge(index).max(self.addresses.start)..edge(index + 1).min(self.addresses.end))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(length: u64, grain: u64, asked: Option<u64>, threads: usize) -> Bytes {
        Chunks::cut(0..length, Bytes(grain), asked.map(Bytes), threads).size()
    }

    #[test]
    fn a_chunk_is_what_the_range_the_threads_and_the_page_allow() {
        const M: u64 = 1 << 20;
        assert_eq!(sizes(1 << 30, 2 * M, None, 1), DEFAULT_CHUNK_BYTES);
        // Less than a page; then so large that one thread would do all the work.
        assert_eq!(sizes(1 << 30, 2 * M, Some(4096), 2), Bytes(2 * M));
        assert_eq!(sizes(1 << 30, 2 * M, Some(1 << 30), 2), Bytes(32 * M));
        assert_eq!(sizes(8 << 30, 2 * M, Some(1 << 30), 2), Bytes(256 * M));
        assert_eq!(sizes(4 << 30, 1 << 30, Some(4 * M), 4), Bytes(1 << 30));
        assert_eq!(sizes(100, 2 * M, None, 64), Bytes(2 * M));
    }

    proptest! {
        #[test]
        fn every_address_is_in_one_chunk_and_no_page_in_two(
            start in 0u64..1 << 47, length in 0u64..1 << 40, log2 in 12u32..31,
            asked in proptest::option::of(0u64..1 << 34), threads in 0usize..100,
        ) {
            let grain = 1u64 << log2;
            let chunks = Chunks::cut(start..start + length, Bytes(grain), asked.map(Bytes), threads);
            let count = chunks.count();
            prop_assert_eq!(count == 0, length == 0);
            prop_assert_eq!(chunks.get(count), None);
            let seen = if count > 2000 { vec![0, 1, count / 2, count / 2 + 1, count - 2, count - 1] } else { (0..count).collect() };
            let mut previous: Option<(u64, Range<u64>)> = None;
            for index in seen {
                let chunk = chunks.get(index).expect("it is below the count");
                prop_assert!(!chunk.is_empty());
                prop_assert!(chunk.end - chunk.start <= chunks.size().0);
                prop_assert!(index != 0 || chunk.start == start);
                prop_assert!(index + 1 != count || chunk.end == start + length);
                prop_assert!(index == 0 || chunk.start % grain == 0);
                if let Some((_, before)) = previous.filter(|(before, _)| before + 1 == index) {
                    prop_assert_eq!(before.end, chunk.start);
                }
                previous = Some((index, chunk));
            }
        }
    }
}
