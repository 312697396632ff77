//! Exported symbols of a library, read from its loaded image.
//!
//! The dynamic section and all tables that it refers to are part of the loaded image. The file is not read:
//! it may be in a container, or deleted. Source: the ELF gABI, and `DT_GNU_HASH` as the GNU linker writes it.

use std::collections::BTreeMap;

use super::memory::Memory;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const SYMBOL_BYTES: u64 = 24;
const MOST_HEADERS: u16 = 64;
const MOST_ENTRIES: usize = 256;
/// Upper bound; libjvm.so exports about 1000.
const MOST_SYMBOLS: u64 = 1 << 17;

/// A loaded library.
pub(super) struct Library<'m> {
    memory: &'m dyn Memory,
    /// Difference between loaded addresses and those in the file.
    bias: u64,
    /// End of the image, zero-initialised data included.
    pub(super) end: u64,
    symbols: u64,
    strings: u64,
    gnu_hash: Option<u64>,
    hash: Option<u64>,
}

impl<'m> Library<'m> {
    /// Reads the library loaded at `base`; `None` if it is not a 64-bit ELF image in this machine's byte order.
    pub(super) fn read(memory: &'m dyn Memory, base: u64) -> Option<Library<'m>> {
        let mut header = [0; 64];
        memory.read(base, &mut header)?;
        let native = if cfg!(target_endian = "little") { 1 } else { 2 };
        if header[..4] != *b"\x7fELF" || header[4] != 2 || header[5] != native {
            return None;
        }
        let half = |at: usize| Some(u16::from_ne_bytes(header.get(at..at + 2)?.try_into().ok()?));
        let offset = u64::from_ne_bytes(header.get(32..40)?.try_into().ok()?);
        let (size, count) = (u64::from(half(54)?), half(56)?.min(MOST_HEADERS));
        let (mut first_load, mut dynamic, mut last) = (None, None, 0);
        for index in 0..u64::from(count) {
            let at = base.checked_add(offset)?.checked_add(index * size)?;
            let address = memory.u64(at.checked_add(16)?)?;
            match memory.u32(at)? {
                PT_LOAD => {
                    first_load.get_or_insert(address);
                    last = last.max(address.checked_add(memory.u64(at.checked_add(40)?)?)?);
                }
                PT_DYNAMIC => dynamic = Some(address),
                _ => {}
            }
        }
        let bias = base.wrapping_sub(first_load?);
        let mut found = BTreeMap::new();
        let mut at = bias.wrapping_add(dynamic?);
        for _ in 0..MOST_ENTRIES {
            let (tag, value) = (memory.u64(at)?, memory.u64(at.checked_add(8)?)?);
            if tag == 0 {
                break;
            }
            // glibc stores loaded addresses here, other C libraries keep those of the file.
            found.insert(tag, if value < base { bias.wrapping_add(value) } else { value });
            at = at.checked_add(16)?;
        }
        Some(Library {
            memory,
            bias,
            end: bias.wrapping_add(last),
            symbols: *found.get(&DT_SYMTAB)?,
            strings: *found.get(&DT_STRTAB)?,
            gnu_hash: found.get(&DT_GNU_HASH).copied(),
            hash: found.get(&DT_HASH).copied(),
        })
    }

    /// Address of an exported symbol; `None` if the library does not export it.
    pub(super) fn look_up(&self, name: &str) -> Option<u64> {
        match (self.gnu_hash, self.hash) {
            (Some(table), _) => self.by_gnu_hash(table, name),
            (None, Some(table)) => {
                let count = u64::from(self.memory.u32(table.checked_add(4)?)?).min(MOST_SYMBOLS);
                (1..count).find_map(|index| self.value(index, name))
            }
            (None, None) => None,
        }
    }

    fn by_gnu_hash(&self, table: u64, name: &str) -> Option<u64> {
        let word = |index: u64| self.memory.u32(table.checked_add(index.checked_mul(4)?)?);
        let (buckets, first, bloom) = (u64::from(word(0)?), u64::from(word(1)?), u64::from(word(2)?));
        let hash = name.bytes().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
        let bucket_at = 4 + 2 * bloom;
        let begin = u64::from(word(bucket_at + u64::from(hash).checked_rem(buckets)?)?);
        for index in begin..begin + MOST_SYMBOLS {
            let chained = word(bucket_at + buckets + index.checked_sub(first)?)?;
            if chained | 1 == hash | 1 {
                if let Some(value) = self.value(index, name) {
                    return Some(value);
                }
            }
            if chained & 1 == 1 {
                return None;
            }
        }
        None
    }

    /// Address of symbol `index`, if it has this name and is defined here.
    fn value(&self, index: u64, name: &str) -> Option<u64> {
        let symbol = self.symbols.checked_add(index.checked_mul(SYMBOL_BYTES)?)?;
        let at = self.strings.checked_add(u64::from(self.memory.u32(symbol)?))?;
        if self.memory.text(at)? != name {
            return None;
        }
        let value = self.memory.u64(symbol.checked_add(8)?)?;
        (value != 0).then(|| self.bias.wrapping_add(value))
    }
}

#[cfg(test)]
mod tests {
    use hugewise_linux::{proc::smaps, root::Root};
    use proptest::prelude::*;

    use super::{
        super::memory::{ProcessMemory, fake::FakeMemory},
        *,
    };

    #[test]
    fn the_c_library_of_this_process_is_read() -> Result<(), Box<dyn std::error::Error>> {
        let vmas = smaps::read(&Root::live(), "self")?;
        let Some(libc) = vmas.iter().find(|vma| vma.name.contains("/libc.so")) else { return Ok(()) };
        let live = ProcessMemory::of(&Root::live(), std::process::id(), &vmas);
        let found = Library::read(&live, libc.addresses.start).ok_or("no ELF image")?;
        let last = vmas.iter().filter(|vma| vma.name == libc.name).map(|vma| vma.addresses.end).max();
        assert!(last.is_some_and(|last| (last - 4096..last + (1 << 20)).contains(&found.end)));
        let getpid = found.look_up("getpid").ok_or("no getpid")?;
        let holds = |vma: &&smaps::Vma| vma.addresses.contains(&getpid);
        assert!(
            vmas.iter().find(holds).is_some_and(|vma| vma.name == libc.name && vma.permissions.contains('x'))
        );
        assert_eq!(found.look_up("no_such_name"), None);
        Ok(())
    }

    proptest! {
        #[test]
        fn no_image_makes_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 64..600)) {
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            bytes[32..40].copy_from_slice(&64u64.to_ne_bytes());
            let memory = FakeMemory([(0x1000, bytes)].into());
            let _ = Library::read(&memory, 0x1000).map(|library| library.look_up("a"));
        }

        #[test]
        fn no_hash_table_makes_it_panic(words in prop::collection::vec(0u64..64, 16..128)) {
            let mut memory = FakeMemory::default();
            memory.words(0, &words);
            let dynamic =
                Library { memory: &memory, bias: 0, end: 0, symbols: 0, strings: 0, gnu_hash: Some(0), hash: Some(0) };
            let _ = (dynamic.look_up("x"), Library { gnu_hash: None, ..dynamic }.look_up("x"));
        }
    }
}
