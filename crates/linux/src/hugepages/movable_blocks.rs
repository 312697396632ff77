//! The use of every page frame, from /proc/kpageflags: which large blocks are free, or can be freed by
//! migrating their pages.

use std::io::{self, Read};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    root::{ReadError, Root},
    units::{PageSize, Pages},
};

/// Path of the flags: a native 64-bit word per page frame, readable with CAP_SYS_ADMIN.
pub const KPAGEFLAGS: &str = "proc/kpageflags";

// Bits of `include/uapi/linux/kernel-page-flags.h`, see `Documentation/admin-guide/mm/pagemap.rst`.
const LRU: u64 = 1 << 5;
const BUDDY: u64 = 1 << 10;
const ANON: u64 = 1 << 12;

/// Bytes per read.
const CHUNK: usize = 1 << 20;

/// The aligned blocks of one large page size, by content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Blocks {
    /// Blocks with free pages only.
    pub free: Pages,
    /// Blocks with free and movable pages only.
    pub movable: Pages,
    /// Blocks that also have pages without any flag: kernel memory, per-CPU page lists, or memory that the
    /// kernel has not initialised yet.
    pub undecided: Pages,
    /// Blocks with an unmovable page, or partly without memory.
    pub blocked: Pages,
}

/// The kind of a page, and of the block that contains it unless a page of a later kind does, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Free,
    Movable,
    Undecided,
    Blocked,
}

impl Kind {
    fn of_page(flags: u64) -> Kind {
        match flags {
            0 => Kind::Undecided,
            flags if flags & BUDDY != 0 => Kind::Free,
            flags if flags & (LRU | ANON) != 0 => Kind::Movable,
            _ => Kind::Blocked,
        }
    }
}

/// Counts the aligned blocks of `size` by content.
///
/// Reads a word per base page: 8 bytes for 4 KiB, so 2 MiB for each GiB of memory.
pub fn scan(root: &Root, base: PageSize, size: PageSize) -> Result<Blocks, ReadError> {
    let blocks = count(root.open(KPAGEFLAGS)?, base, size);
    blocks.map_err(|source| ReadError::Io { path: root.path(KPAGEFLAGS), source })
}

fn count(mut flags: impl Read, base: PageSize, size: PageSize) -> io::Result<Blocks> {
    let pages_in_block = 1u64 << size.log2().saturating_sub(base.log2());
    let mut blocks = Blocks::default();
    let mut chunk = vec![0; CHUNK];
    let (mut kind, mut pages) = (Kind::Free, 0);
    loop {
        let got = fill(&mut chunk, |rest, _| flags.read(rest))?;
        if got == 0 {
            // The rest is less than a block.
            return Ok(blocks);
        }
        for word in chunk[..got].chunks_exact(8) {
            // Always eight bytes.
            let flags = word.try_into().map_or(0, u64::from_ne_bytes);
            kind = kind.max(Kind::of_page(flags));
            pages += 1;
            if pages == pages_in_block {
                blocks.add(kind);
                (kind, pages) = (Kind::Free, 0);
            }
        }
    }
}

/// Fills the buffer by `read`, which receives the rest of the buffer and the number of bytes read so far.
/// Returns the number of bytes read; fewer than the buffer holds only at the end of the file.
pub(crate) fn fill(
    buffer: &mut [u8],
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match read(&mut buffer[got..], got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

impl Blocks {
    fn add(&mut self, kind: Kind) {
        let count = match kind {
            Kind::Free => &mut self.free,
            Kind::Movable => &mut self.movable,
            Kind::Undecided => &mut self.undecided,
            Kind::Blocked => &mut self.blocked,
        };
        *count += Pages(1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counted(words: &[u64]) -> Option<Blocks> {
        let bytes: Vec<u8> = words.iter().copied().flat_map(u64::to_ne_bytes).collect();
        count(&bytes[..], "4k".parse().ok()?, "16k".parse().ok()?).ok()
    }

    #[test]
    fn blocks_are_distinguished_by_the_worst_page_in_them() {
        const NOPAGE: u64 = 1 << 20;
        const SLAB: u64 = 1 << 7;
        let free = [BUDDY, BUDDY, BUDDY | (1 << 3), BUDDY];
        let movable = [BUDDY, LRU, ANON, BUDDY];
        let undecided = [BUDDY, LRU, 0, 0];
        let words = [free, movable, movable, undecided, [0, SLAB, BUDDY, LRU], [NOPAGE; 4]].concat();
        let expected = Blocks { free: Pages(1), movable: Pages(2), undecided: Pages(1), blocked: Pages(2) };
        assert_eq!(counted(&words), Some(expected));
        // The last block is incomplete.
        assert_eq!(counted(&words[..23]).map(|blocks| blocks.blocked), Some(Pages(1)));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in any::<Vec<u8>>()) {
            if let (Ok(base), Ok(size)) = ("64k".parse(), "4k".parse()) {
                prop_assert!(count(&bytes[..], base, size).is_ok());
            }
        }
    }
}
