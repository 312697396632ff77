//! The memory of the process looked at: whatever it holds may be hostile.

use hugewise_kernel::sys::remote;

/// Bytes at addresses.
pub(super) trait Memory {
    /// Fills `into` from `address`; nothing where not all of it is there.
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()>;

    /// Why the last look at `address` gives nothing, where that can be told.
    fn reason(&self, address: u64) -> String {
        format!("nothing could be read at {address:#x}")
    }
}

impl dyn Memory + '_ {
    pub(super) fn u64(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Some(u64::from_ne_bytes(bytes))
    }

    pub(super) fn u32(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Some(u32::from_ne_bytes(bytes))
    }

    pub(super) fn byte(&self, address: u64) -> Option<u8> {
        let mut byte = [0];
        self.read(address, &mut byte)?;
        Some(byte[0])
    }

    /// The words from `address` on, in one look; nothing where not all are there.
    pub(super) fn words(&self, address: u64, count: usize) -> Option<Vec<u64>> {
        let mut bytes = vec![0; count.min(MOST_WORDS) * 8];
        self.read(address, &mut bytes)?;
        Some(
            bytes
                .chunks_exact(8)
                .filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?)))
                .collect(),
        )
    }

    /// A text that ends with a zero byte within 256, printable ASCII only.
    pub(super) fn text(&self, address: u64) -> Option<String> {
        let mut text = Vec::new();
        // By pieces that never reach over the end of a page, behind which nothing may be.
        let mut at = address;
        while text.len() < 256 {
            let mut piece = [0; 64];
            let piece = &mut piece[..64 - (at % 64) as usize];
            self.read(at, piece)?;
            at = at.checked_add(piece.len() as u64)?;
            match piece.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    text.extend_from_slice(&piece[..end]);
                    let printable = text.iter().all(|byte| (b' '..=b'~').contains(byte));
                    return String::from_utf8(text).ok().filter(|_| printable);
                }
                None => text.extend_from_slice(piece),
            }
        }
        None
    }
}

/// No read is larger: 64 MiB.
const MOST_WORDS: usize = 8 << 20;

/// A running process.
pub(super) struct Live {
    pid: u32,
}

impl Live {
    pub(super) fn of(pid: u32) -> Live {
        Live { pid }
    }
}

impl Memory for Live {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        (remote::read(self.pid, address, into).ok()? == into.len()).then_some(())
    }

    fn reason(&self, address: u64) -> String {
        match remote::read(self.pid, address, &mut [0; 8]) {
            Ok(_) => format!("process {} changed while it was read", self.pid),
            Err(error) => {
                format!("reading the memory of process {}: {error}; root, or CAP_SYS_PTRACE, may", self.pid)
            }
        }
    }
}

/// Memory made for a test.
#[cfg(test)]
pub(super) mod made {
    use std::collections::BTreeMap;

    use super::Memory;

    /// Pieces of memory by their first address.
    #[derive(Default)]
    pub(in crate::regions) struct Made(pub BTreeMap<u64, Vec<u8>>);

    impl Made {
        pub(in crate::regions) fn words(&mut self, address: u64, words: &[u64]) {
            self.0.insert(address, words.iter().flat_map(|word| word.to_ne_bytes()).collect());
        }
    }

    impl Memory for Made {
        fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
            let (start, piece) = self.0.range(..=address).next_back()?;
            let from = usize::try_from(address - start).ok()?;
            into.copy_from_slice(piece.get(from..from.checked_add(into.len())?)?);
            Some(())
        }
    }
}
