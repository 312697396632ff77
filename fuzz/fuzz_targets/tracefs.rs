//! Pages of the kernel's ring buffer and formats of its events: no panic.

#![no_main]

use hugewise_kernel::tracefs::{Format, Layout, Page};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &[u8])| {
    let (text, bytes) = input;
    let _ = Layout::parse(text);
    let format = Format::parse(text);
    for commit_size in [4, 8] {
        let Ok(page) = Page::open(bytes, Layout { commit_size, data: 8 + commit_size, size: 4096 }) else { continue };
        for record in page.flatten() {
            for field in format.iter().flat_map(|format| &format.fields) {
                let _ = format.as_ref().map(|format| format.value(record.bytes, &field.name));
            }
        }
    }
});
