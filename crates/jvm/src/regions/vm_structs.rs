//! HotSpot's tables for the serviceability agent: types, fields and their offsets.
//!
//! Source of the format: `vmStructs.hpp` of HotSpot. The tables contain their own strides and offsets, which
//! this reader uses: no version is assumed, and a field that a version lacks is missing.

use std::collections::HashMap;

use super::{elf_symbols::Library, memory::Memory};

const MOST_ROWS: u64 = 20_000;

/// Why the tables are not available.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LoadError {
    /// The library does not export them.
    NotHotSpot,
    Unreadable(String),
}

#[derive(Clone, Copy, Debug)]
enum FieldLocation {
    /// Address of a static field.
    Static(u64),
    /// Offset of a field in its object.
    Offset(u64),
}

/// Memory of a process with HotSpot, and its tables.
pub(super) struct Image<'m> {
    pub(super) memory: &'m dyn Memory,
    /// End of the image of libjvm.so.
    pub(super) library_end: u64,
    /// Fields by `Type::field`.
    fields: HashMap<String, FieldLocation>,
    sizes: HashMap<String, u64>,
}

/// Returns the address of an exported variable.
type Symbols<'s> = dyn Fn(&str) -> Option<u64> + 's;

/// One table, described by the exported variables with one prefix.
struct Table<'s> {
    memory: &'s dyn Memory,
    symbols: &'s Symbols<'s>,
    prefix: &'s str,
    first: u64,
    stride: u64,
}

impl<'m> Image<'m> {
    /// Reads the tables of the libjvm.so loaded at `base`.
    pub(super) fn load(memory: &'m dyn Memory, base: u64) -> Result<Image<'m>, LoadError> {
        let unreadable = |address: u64| LoadError::Unreadable(memory.reason(address));
        if memory.byte(base).is_none() {
            return Err(unreadable(base));
        }
        let library = Library::read(memory, base)
            .ok_or_else(|| LoadError::Unreadable(format!("no ELF image of this machine at {base:#x}")))?;
        let symbols: &Symbols<'_> = &|name| library.look_up(name);
        if symbols("gHotSpotVMStructs").is_none() {
            return Err(LoadError::NotHotSpot);
        }
        let library_end = library.end;
        let mut image = Image { memory, library_end, fields: HashMap::new(), sizes: HashMap::new() };
        image.load_fields(symbols).ok_or_else(|| unreadable(base))?;
        // Few regions need the sizes; the others are found without them.
        let _ = image.load_sizes(symbols);
        Ok(image)
    }

    fn load_fields(&mut self, symbols: &Symbols<'_>) -> Option<()> {
        let table = Table::of(self.memory, symbols, "gHotSpotVMStructs", "gHotSpotVMStructEntry")?;
        let offset = |name| table.offset_of(name);
        let (type_at, field_at) = (offset("TypeNameOffset")?, offset("FieldNameOffset")?);
        let (static_at, offset_at) = (offset("IsStaticOffset")?, offset("OffsetOffset")?);
        let address_at = offset("AddressOffset")?;
        for row in table.rows() {
            let type_name = self.memory.u64(row.checked_add(type_at)?)?;
            if type_name == 0 {
                return Some(());
            }
            let field_name = self.memory.u64(row.checked_add(field_at)?)?;
            let place = match self.memory.u32(row.checked_add(static_at)?)? {
                0 => FieldLocation::Offset(self.memory.u64(row.checked_add(offset_at)?)?),
                _ => FieldLocation::Static(self.memory.u64(row.checked_add(address_at)?)?),
            };
            if let (Some(of), Some(field)) = (self.memory.text(type_name), self.memory.text(field_name)) {
                self.fields.insert(format!("{of}::{field}"), place);
            }
        }
        None
    }

    fn load_sizes(&mut self, symbols: &Symbols<'_>) -> Option<()> {
        let table = Table::of(self.memory, symbols, "gHotSpotVMTypes", "gHotSpotVMTypeEntry")?;
        let (name_at, size_at) = (table.offset_of("TypeNameOffset")?, table.offset_of("SizeOffset")?);
        for row in table.rows() {
            let name = self.memory.u64(row.checked_add(name_at)?)?;
            if name == 0 {
                break;
            }
            let size = self.memory.u64(row.checked_add(size_at)?)?;
            if let Some(name) = self.memory.text(name) {
                self.sizes.insert(name, size);
            }
        }
        Some(())
    }

    /// Size of a type in bytes.
    pub(super) fn size(&self, type_name: &str) -> Option<u64> {
        self.sizes.get(type_name).copied().filter(|size| *size > 0)
    }

    /// Address of a field of the object at `object`.
    pub(super) fn place(&self, object: u64, field: &str) -> Option<u64> {
        match self.fields.get(field)? {
            FieldLocation::Offset(offset) if object != 0 => object.checked_add(*offset),
            _ => None,
        }
    }

    /// Word in a field of the object at `object`.
    pub(super) fn field(&self, object: u64, field: &str) -> Option<u64> {
        self.memory.u64(self.place(object, field)?)
    }

    /// Word in a static field.
    pub(super) fn static_field(&self, field: &str) -> Option<u64> {
        match self.fields.get(field)? {
            FieldLocation::Static(address) => self.memory.u64(*address),
            FieldLocation::Offset(_) => None,
        }
    }
}

impl<'s> Table<'s> {
    fn of(
        memory: &'s dyn Memory,
        symbols: &'s Symbols<'s>,
        name: &str,
        prefix: &'s str,
    ) -> Option<Table<'s>> {
        let table = Table { memory, symbols, prefix, first: 0, stride: 0 };
        let first = memory.u64(symbols(name)?).filter(|first| *first != 0)?;
        let stride = table.variable("ArrayStride").filter(|stride| (8..=512).contains(stride))?;
        Some(Table { first, stride, ..table })
    }

    fn variable(&self, name: &str) -> Option<u64> {
        self.memory.u64((self.symbols)(&format!("{}{name}", self.prefix))?)
    }

    /// Offset of a column in a row.
    fn offset_of(&self, name: &str) -> Option<u64> {
        self.variable(name).filter(|offset| *offset < self.stride)
    }

    fn rows(&self) -> impl Iterator<Item = u64> {
        let (first, stride) = (self.first, self.stride);
        (0..MOST_ROWS).map_while(move |index| first.checked_add(index * stride))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{super::memory::fake::FakeMemory, *};

    const STRUCTS: [&str; 7] = [
        "gHotSpotVMStructs",
        "gHotSpotVMStructEntryArrayStride",
        "gHotSpotVMStructEntryTypeNameOffset",
        "gHotSpotVMStructEntryFieldNameOffset",
        "gHotSpotVMStructEntryIsStaticOffset",
        "gHotSpotVMStructEntryOffsetOffset",
        "gHotSpotVMStructEntryAddressOffset",
    ];

    /// A table of two fields: `Universe::_heap`, static, at 0x5000; `Heap::_size` at offset 16.
    fn fake() -> (FakeMemory, BTreeMap<&'static str, u64>) {
        let mut memory = FakeMemory::default();
        let mut symbols = BTreeMap::new();
        let values = [0x2000, 48, 0, 8, 24, 32, 40];
        for (index, (name, value)) in STRUCTS.iter().zip(values).enumerate() {
            let address = 0x1000 + index as u64 * 0x100;
            memory.words(address, &[value]);
            symbols.insert(*name, address);
        }
        let rows = [[0x3000, 0x3040, 0, 1, 0, 0x5000], [0x3080, 0x30c0, 0, 0, 16, 0], [0; 6]];
        memory.words(0x2000, &rows.concat());
        for (address, text) in [(0x3000, "Universe"), (0x3040, "_heap"), (0x3080, "Heap"), (0x30c0, "_size")]
        {
            let mut bytes = text.as_bytes().to_vec();
            bytes.resize(64, 0);
            memory.0.insert(address, bytes);
        }
        memory.words(0x5000, &[0x6000]);
        memory.words(0x6000, &[0, 0, 4711]);
        (memory, symbols)
    }

    fn load<'m>(memory: &'m FakeMemory, symbols: &BTreeMap<&str, u64>) -> (Image<'m>, Option<()>) {
        let mut image = Image { memory, library_end: 0, fields: HashMap::new(), sizes: HashMap::new() };
        let loaded = image.load_fields(&|name| symbols.get(name).copied());
        (image, loaded)
    }

    #[test]
    fn fields_are_found_by_their_names_and_others_are_missing() {
        let (memory, symbols) = fake();
        let (image, loaded) = load(&memory, &symbols);
        assert_eq!(loaded, Some(()));
        let heap = image.static_field("Universe::_heap");
        assert_eq!(heap, Some(0x6000));
        assert_eq!(image.field(0x6000, "Heap::_size"), Some(4711));
        assert_eq!(image.field(0, "Heap::_size"), None);
        assert_eq!(image.static_field("Heap::_size"), None);
        assert_eq!(image.static_field("Universe::_gone"), None);
    }

    #[test]
    fn a_table_without_an_end_or_a_stride_is_refused() {
        let (mut memory, symbols) = fake();
        memory.words(0x2000, &[0x3000, 0x3040, 0, 1, 0, 0x5000]);
        assert_eq!(load(&memory, &symbols).1, None);
        memory.words(0x1100, &[0]);
        assert_eq!(load(&memory, &symbols).1, None);
    }

    proptest! {
        #[test]
        fn no_table_makes_it_panic(junk in prop::collection::vec(any::<u64>(), 0..40), at in 0x1000u64..0x3100) {
            let (mut memory, symbols) = fake();
            memory.words(at & !7, &junk);
            let (image, _) = load(&memory, &symbols);
            let _ = (image.static_field("Universe::_heap"), image.field(u64::MAX, "Heap::_size"));
        }
    }
}
