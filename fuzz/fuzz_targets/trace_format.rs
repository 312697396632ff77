//! Event formats of tracefs, and counts of lost events: no panic, and no value from beyond the end of a
//! record.

#![no_main]

use hugewise_linux::tracefs::{Format, Layout, Losses};
use libfuzzer_sys::fuzz_target;

/// A valid prefix, which random input rarely contains.
const HEAD: &str =
    "name: a\nID: 7\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:";

fuzz_target!(|input: (&str, &[u8])| {
    let (text, record) = input;
    let _ = Losses::parse(text);
    if let Some(layout) = Layout::parse(text) {
        assert!(layout.data <= layout.size);
    }
    for text in [text, &format!("{HEAD}{text}")] {
        let Some(format) = Format::parse(text) else { continue };
        for field in &format.fields {
            let end = field.offset.checked_add(field.size);
            let is_inside = end.is_some_and(|end| end <= record.len());
            // If two fields have one name, the first counts.
            let is_first = format.fields.iter().find(|other| other.name == field.name) == Some(field);
            assert!(is_inside || !is_first || format.value(record, &field.name).is_none());
        }
    }
});
