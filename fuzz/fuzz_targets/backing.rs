//! Backings: no panic, and a printed backing parses to the same value.

#![no_main]

use hugewise_linux::hugepages::backing::Backing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(backing) = text.parse::<Backing>() {
        assert_eq!(backing.to_string().parse(), Ok(backing), "{text}");
    }
});
