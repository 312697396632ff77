//! Pages of the kernel's ring buffer: no panic, and no record from outside its page.

#![no_main]

use hugewise_linux::tracefs::{Format, Layout, Page};
use libfuzzer_sys::fuzz_target;

const FORMAT: &str = "name: mm_compaction_end
ID: 669
format:
\tfield:unsigned long zone_start;\toffset:8;\tsize:8;\tsigned:0;
\tfield:bool sync;\toffset:40;\tsize:1;\tsigned:0;
\tfield:int status;\toffset:44;\tsize:4;\tsigned:1;

print fmt: \"%s\", __print_symbolic(REC->status, {1, \"skipped\"}, { 8, \"success\" })
";

fn read(bytes: &[u8], commit_size: usize, format: &Format) {
    let layout = Layout { commit_size, data: 8 + commit_size, size: 4096 };
    let Ok(page) = Page::open(bytes, layout) else { return };
    let inside = bytes.as_ptr_range();
    let mut left = bytes.len();
    for record in page.flatten() {
        let at = record.bytes.as_ptr_range();
        assert!(inside.start <= at.start && at.end <= inside.end);
        // Records are contiguous, each after a header.
        left = left.checked_sub(record.bytes.len() + 4).expect("more records than bytes");
        for field in &format.fields {
            let _ = format.value(record.bytes, &field.name);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some(format) = Format::parse(FORMAT) else { return };
    for commit_size in [4, 8] {
        read(bytes, commit_size, &format);
        // A valid header, so that the data after it is parsed.
        let mut page = 1_000_000u64.to_ne_bytes().to_vec();
        page.extend(&(bytes.len() as u64).to_ne_bytes()[..commit_size]);
        page.extend(bytes);
        read(&page, commit_size, &format);
    }
});
