//! Sizes: no panic in parsing or printing.

#![no_main]

use hugewise_linux::units::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(bytes) = text.parse::<Bytes>() {
        assert_eq!(bytes.0.to_string().parse(), Ok(bytes), "{text}");
        let _ = bytes.to_string();
    }
});
