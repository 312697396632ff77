//! A page of the ring buffer, as read from `per_cpu/cpuN/trace_pipe_raw`.
//!
//! Source of the layout: `events/header_page`, `events/header_event`, include/linux/ring_buffer.h and
//! kernel/trace/ring_buffer.c (the flags of lost events in `commit`).

use crate::native_endian::{u16_at, u32_at, u64_at};

const TYPE_PADDING: u32 = 29;
const TYPE_TIME_EXTEND: u32 = 30;
const TYPE_TIME_STAMP: u32 = 31;
/// Number of bits of the time difference in an event's header.
const DELTA_BITS: u32 = 27;
/// The bits of an absolute time that are not in the event.
const TIME_STAMP_MISSING: u64 = 0xf8 << 56;
const MISSED_EVENTS: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
/// Offsets of type and process id at the beginning of every record.
const COMMON_TYPE: usize = 0;
const COMMON_PID: usize = 4;

/// The layout of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Length of `commit`, which follows eight bytes of time: the size of a machine word.
    pub commit_size: usize,
    /// Offset of the data.
    pub data: usize,
    /// Length of a page in bytes.
    pub size: usize,
}

#[derive(Clone, Debug)]
pub struct Page<'a> {
    time: u64,
    left: &'a [u8],
    /// Number of events overwritten before this page; `Some(None)` if the number is unknown.
    pub missed: Option<Option<u64>>,
}

/// An event in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time in nanoseconds of the buffer's clock.
    pub ns: u64,
    /// The event, see [`super::Format::id`].
    pub id: u16,
    /// The thread that was running.
    pub tid: u32,
    /// The whole record, including the common fields.
    pub bytes: &'a [u8],
}

/// A page that is not in the documented layout; its remaining records are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a page of the trace buffer is not in the documented layout")]
pub struct DamagedPage;

impl Layout {
    pub fn parse(header_page: &str) -> Option<Layout> {
        let field = |name: &str, key: &str| {
            let line = header_page.lines().find(|line| line.contains(&format!(" {name};")))?;
            line.split(';').find_map(|part| part.trim().strip_prefix(key))?.parse::<usize>().ok()
        };
        let (commit_size, data) = (field("commit", "size:")?, field("data", "offset:")?);
        let size = data.checked_add(field("data", "size:")?)?;
        let fits = matches!(commit_size, 4 | 8) && data >= 8 + commit_size && size <= 1 << 20;
        fits.then_some(Layout { commit_size, data, size })
    }
}

impl<'a> Page<'a> {
    pub fn open(bytes: &'a [u8], layout: Layout) -> Result<Page<'a>, DamagedPage> {
        let word = |at| match layout.commit_size {
            4 => u32_at(bytes, at).map(u64::from),
            _ => u64_at(bytes, at),
        };
        let time = u64_at(bytes, 0).ok_or(DamagedPage)?;
        let commit = word(8).ok_or(DamagedPage)?;
        let length = (commit & (MISSED_STORED - 1)) as usize;
        let end = layout.data.checked_add(length).ok_or(DamagedPage)?;
        let left = bytes.get(layout.data..end).ok_or(DamagedPage)?;
        let missed =
            (commit & MISSED_EVENTS != 0).then(|| if commit & MISSED_STORED != 0 { word(end) } else { None });
        Ok(Page { time, left, missed })
    }

    fn step(&mut self) -> Result<Option<Record<'a>>, DamagedPage> {
        while let Some(header) = u32_at(self.left, 0) {
            let (kind, delta) = (header & 0x1f, u64::from(header >> 5));
            let word = || u32_at(self.left, 4).ok_or(DamagedPage);
            // Range of the record's bytes after the header; none for an event of the buffer itself.
            let (data, end) = match kind {
                // The rest of the page.
                TYPE_PADDING if delta == 0 => return Ok(None),
                TYPE_PADDING => (None, (word()? as usize).checked_add(4).ok_or(DamagedPage)?),
                TYPE_TIME_EXTEND | TYPE_TIME_STAMP => (None, 8),
                0 => (Some(8), (word()? as usize).checked_add(4).ok_or(DamagedPage)?),
                words => (Some(4), 4 + 4 * words as usize),
            };
            self.time = match kind {
                TYPE_TIME_STAMP => {
                    (self.time & TIME_STAMP_MISSING) | ((u64::from(word()?) << DELTA_BITS) + delta)
                }
                TYPE_TIME_EXTEND => self.time.wrapping_add((u64::from(word()?) << DELTA_BITS) + delta),
                _ => self.time.wrapping_add(delta),
            };
            let bytes = data.map(|data| self.left.get(data..end).ok_or(DamagedPage)).transpose()?;
            self.left = self.left.get(end..).ok_or(DamagedPage)?;
            if let Some(bytes) = bytes {
                let id = u16_at(bytes, COMMON_TYPE).ok_or(DamagedPage)?;
                let tid = u32_at(bytes, COMMON_PID).ok_or(DamagedPage)?;
                return Ok(Some(Record { ns: self.time, id, tid, bytes }));
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Page<'a> {
    type Item = Result<Record<'a>, DamagedPage>;

    /// Ends after a damaged record: the start of the next one is unknown.
    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step().transpose();
        if matches!(step, Some(Err(DamagedPage))) {
            self.left = &[];
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LAYOUT: Layout = Layout { commit_size: 8, data: 16, size: 4096 };

    fn page(time: u64, flags: u64, data: &[u32]) -> Vec<u8> {
        let mut bytes: Vec<u8> = time.to_ne_bytes().to_vec();
        bytes.extend(((data.len() as u64 * 4) | flags).to_ne_bytes());
        bytes.extend(data.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(7u64.to_ne_bytes());
        bytes.resize(LAYOUT.size, 0);
        bytes
    }

    fn header(kind: u32, delta: u32) -> u32 {
        kind | (delta << 5)
    }

    #[test]
    fn the_header_page_of_the_kernel_is_read() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
                    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
                    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
        assert_eq!(Layout::parse(text), Some(LAYOUT));
        assert_eq!(Layout::parse("field: char data;\toffset:16;"), None);
    }

    #[test]
    fn times_add_up_over_events_of_every_kind() -> Result<(), DamagedPage> {
        let data = [
            header(2, 5),
            11,
            100, // two words, five nanoseconds after the page
            header(TYPE_TIME_EXTEND, 1),
            2, // 2 << 27, and one
            header(TYPE_PADDING, 3),
            8,
            0, // a discarded event
            header(0, 10),
            16,
            12,
            200,
            9, // its length in a word of its own: 16 with that word
            header(TYPE_TIME_STAMP, 4),
            1, // (1 << 27) + 4, absolute
            header(2, 1),
            13,
            300,
            header(TYPE_PADDING, 0),
            0,
            0,
        ];
        let bytes = page(1000, 0, &data);
        let page = Page::open(&bytes, LAYOUT)?;
        assert_eq!(page.missed, None);
        let found = page.map(|record| record.map(|r| (r.ns, r.id, r.tid, r.bytes.len())));
        let late = 1000 + 5 + (2 << 27) + 1 + 3 + 10;
        assert_eq!(
            found.collect::<Result<Vec<_>, _>>()?,
            [(1005, 11, 100, 8), (late, 12, 200, 12), ((1 << 27) + 5, 13, 300, 8)]
        );
        Ok(())
    }

    #[test]
    fn lost_events_are_reported() -> Result<(), DamagedPage> {
        let data = [header(2, 0), 1, 2];
        assert_eq!(Page::open(&page(0, MISSED_EVENTS, &data), LAYOUT)?.missed, Some(None));
        let stored = page(0, MISSED_EVENTS | MISSED_STORED, &data);
        assert_eq!(Page::open(&stored, LAYOUT)?.missed, Some(Some(7)));
        assert_eq!(Page::open(&stored, LAYOUT)?.count(), 1);
        Ok(())
    }

    #[test]
    fn damage_ends_the_page() -> Result<(), DamagedPage> {
        let bytes = page(0, 0, &[header(2, 0), 1, 2, header(28, 0), 1]);
        let found: Vec<_> = Page::open(&bytes, LAYOUT)?.map(|record| record.map(|r| r.id)).collect();
        assert_eq!(found, [Ok(1), Err(DamagedPage)]);
        assert!(Page::open(&bytes[..20], LAYOUT).is_err());
        Ok(())
    }

    proptest! {
        #[test]
        fn no_page_makes_it_panic(words in prop::collection::vec(any::<u32>(), 0..64), junk in any::<Vec<u8>>()) {
            if let Ok(page) = Page::open(&page(0, MISSED_EVENTS, &words), LAYOUT) {
                let _ = page.count();
            }
            if let Ok(page) = Page::open(&junk, LAYOUT) {
                let _ = page.count();
            }
        }
    }
}
