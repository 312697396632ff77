//! Sections of an ELF file: marks of the runtime that a program contains.
//!
//! Source: the System V ABI.

use std::{fs::File, os::unix::fs::FileExt};

use crate::native_endian::{u16_at, u32_at, u64_at};

/// Largest section that is read, in bytes.
const MAX_SECTION_BYTES: u64 = 64 << 20;
/// Largest number of sections.
const MAX_SECTIONS: usize = 4096;

/// A section of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    pub name: String,
    offset: u64,
    length: u64,
}

/// The sections of a 64-bit file in this machine's byte order; none of other files.
pub fn sections(file: &File) -> Vec<Section> {
    parse(file).unwrap_or_default()
}

impl Section {
    /// Its bytes; `None` if they cannot be read, or are too many.
    pub fn read(&self, file: &File) -> Option<Vec<u8>> {
        bytes(file, self.offset, self.length)
    }
}

fn bytes(file: &File, offset: u64, length: u64) -> Option<Vec<u8>> {
    let length = usize::try_from(length).ok().filter(|_| length <= MAX_SECTION_BYTES)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).ok()?;
    bytes.resize(length, 0);
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

fn parse(file: &File) -> Option<Vec<Section>> {
    const HEADER_BYTES: usize = 64;
    let header = bytes(file, 0, HEADER_BYTES as u64)?;
    if header.get(..5)? != [0x7f, b'E', b'L', b'F', 2] || usize::from(u16_at(&header, 58)?) != HEADER_BYTES {
        return None;
    }
    let (count, names) = (usize::from(u16_at(&header, 60)?), usize::from(u16_at(&header, 62)?));
    let count = count.min(MAX_SECTIONS);
    let table = bytes(file, u64_at(&header, 40)?, (count * HEADER_BYTES) as u64)?;
    let place =
        |n: usize| Some((u64_at(&table, n * HEADER_BYTES + 24)?, u64_at(&table, n * HEADER_BYTES + 32)?));
    let (offset, length) = place(names)?;
    let names = bytes(file, offset, length)?;
    let section = |n: usize| {
        let name =
            names.get(u32_at(&table, n * HEADER_BYTES)? as usize..)?.split(|byte| *byte == 0).next()?;
        let (offset, length) = place(n)?;
        Some(Section { name: String::from_utf8_lossy(name).into_owned(), offset, length })
    };
    Some((0..count).filter_map(section).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn our_own_sections_are_read() -> std::io::Result<()> {
        let file = File::open("/proc/self/exe")?;
        let all = sections(&file);
        let comment = all.iter().find(|section| section.name == ".comment").and_then(|one| one.read(&file));
        assert!(comment.is_some_and(|text| !text.is_empty()), "{all:?}");
        assert_eq!(sections(&File::open("/proc/self/status")?), []);
        Ok(())
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut file = tempfile::tempfile()?;
            file.write_all(&[0x7f, b'E', b'L', b'F', 2])?;
            file.write_all(&bytes)?;
            file.write_all_at(&64u16.to_ne_bytes(), 58)?;
            let all = sections(&file);
            let _ = all.iter().filter_map(|section| section.read(&file)).count();
        }
    }
}
