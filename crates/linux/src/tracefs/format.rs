//! The layout of an event: `events/*/*/format`.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::native_endian::{u16_at, u32_at, u64_at};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// `common_type` of its records.
    pub id: u16,
    /// Its own fields, without those common to all events.
    pub fields: Vec<Field>,
    /// Names of a field's values, by field.
    words: BTreeMap<String, BTreeMap<i64, String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    /// Byte offset in the record.
    pub offset: usize,
    /// Length in bytes.
    pub size: usize,
    /// True for a signed number.
    pub signed: bool,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// A number from 0.
    Unsigned(u64),
    /// A negative number.
    Signed(i64),
    /// The kernel's name of the value.
    Word(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(number) => number.fmt(f),
            Value::Signed(number) => number.fmt(f),
            Value::Word(word) => f.write_str(word),
        }
    }
}

impl Format {
    /// `None` if the text is not a format file.
    pub fn parse(text: &str) -> Option<Format> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
        let fields: Vec<Field> = text.lines().filter_map(field).collect();
        let print = text.lines().find_map(|line| line.strip_prefix("print fmt:")).unwrap_or_default();
        let words = fields
            .iter()
            .filter_map(|field| Some((field.name.clone(), words(print, &field.name)?)))
            .collect();
        Some(Format {
            id,
            fields: fields.into_iter().filter(|field| !field.name.starts_with("common_")).collect(),
            words,
        })
    }

    /// The value of a field in a record; `None` if the record has no such field or it is not a number.
    pub fn value(&self, record: &[u8], name: &str) -> Option<Value> {
        let field = self.fields.iter().find(|field| field.name == name)?;
        let number = field.number(record)?;
        let word = || i64::try_from(number).ok().and_then(|key| self.words.get(name)?.get(&key));
        Some(match (word(), u64::try_from(number)) {
            (Some(word), _) => Value::Word(word.clone()),
            (None, Ok(number)) => Value::Unsigned(number),
            (None, Err(_)) => Value::Signed(i64::try_from(number).ok()?),
        })
    }
}

impl Field {
    fn number(&self, record: &[u8]) -> Option<i128> {
        let unsigned = match self.size {
            1 => u64::from(*record.get(self.offset)?),
            2 => u64::from(u16_at(record, self.offset)?),
            4 => u64::from(u32_at(record, self.offset)?),
            8 => u64_at(record, self.offset)?,
            _ => return None,
        };
        if !self.signed {
            return Some(unsigned.into());
        }
        // Shifting a signed number to the right extends its sign.
        let unused_bits = 64 - 8 * self.size;
        Some(((unsigned << unused_bits) as i64 >> unused_bits).into())
    }
}

/// `field:unsigned long pfn; offset:8; size:8; signed:0;`
fn field(line: &str) -> Option<Field> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    // Arrays and strings are not numbers.
    if declaration.ends_with(']') || declaration.starts_with("__data_loc") {
        return None;
    }
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
    let (offset, size, signed) = (number("offset:")?, number("size:")?, number("signed:")?);
    let name = declaration.rsplit([' ', '*']).next()?.to_owned();
    Some(Field { name, offset, size, signed: signed != 0 })
}

/// `__print_symbolic(REC->status, {0, "failed"}, {1, "succeeded"})`
fn words(print: &str, name: &str) -> Option<BTreeMap<i64, String>> {
    let (_, list) = print.split_once(&format!("__print_symbolic(REC->{name},"))?;
    // The pairs contain no parenthesis, and the list ends with one.
    let list = list.split(')').next()?;
    let pair = |pair: &str| {
        let (number, word) = pair.split('}').next()?.split_once(',')?;
        Some((number.trim().parse().ok()?, word.trim().trim_matches('"').to_owned()))
    };
    Some(list.split('{').skip(1).filter_map(pair).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const END: &str = "name: mm_compaction_end
ID: 669
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:unsigned long zone_start;	offset:8;	size:8;	signed:0;
	field:struct mm_struct * mm;	offset:16;	size:8;	signed:0;
	field:bool sync;	offset:40;	size:1;	signed:0;
	field:__data_loc char[] filename;	offset:48;	size:4;	signed:0;
	field:int status;	offset:44;	size:4;	signed:1;

print fmt: \"mode=%s status=%s\", REC->sync ? \"sync\" : \"async\", __print_symbolic(REC->status, {1, \"skipped\"}, \
                       { 8, \"success\" })
";

    #[test]
    fn fields_and_their_words_are_read() {
        let Some(format) = Format::parse(END) else { unreachable!() };
        assert_eq!(format.id, 669);
        let names: Vec<&str> = format.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["zone_start", "mm", "sync", "status"]);
        let mut record = vec![0; 48];
        record[8..16].copy_from_slice(&u64::MAX.to_ne_bytes());
        record[44..48].copy_from_slice(&8i32.to_ne_bytes());
        assert_eq!(format.value(&record, "zone_start"), Some(Value::Unsigned(u64::MAX)));
        assert_eq!(format.value(&record, "status"), Some(Value::Word("success".to_owned())));
        record[44..48].copy_from_slice(&(-3i32).to_ne_bytes());
        assert_eq!(format.value(&record, "status"), Some(Value::Signed(-3)));
        assert_eq!(format.value(&record[..46], "status"), None, "cut off");
        assert_eq!(format.value(&record, "filename"), None);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "(.|\n)*", cut in 0..END.len(), record in any::<Vec<u8>>()) {
            let _ = Format::parse(&text);
            let damaged = format!("{}{text}{}", &END[..cut], &END[cut..]);
            if let Some(format) = Format::parse(&damaged) {
                for field in &format.fields {
                    let _ = format.value(&record, &field.name);
                }
            }
        }
    }
}
