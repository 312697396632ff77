//! Regions in the log of `-Xlog:pagesize`, with the page size that the JVM assumes; the kernel's may differ.

use hugewise_linux::units::{Bytes, PageSize};

/// Prints the log without decorations; JDK 9 and later.
pub const OPTION: &str = "-Xlog:pagesize*=info:stdout:none";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRegion {
    /// The JVM's name of the region: `Heap`, `Card Table`, `CodeHeap 'profiled nmethods'`.
    pub name: String,
    /// First address.
    pub base: u64,
    /// Reserved bytes.
    pub size: Bytes,
    /// Bytes committed at first; `None` if not logged.
    pub min: Option<Bytes>,
    /// Page size that the JVM assumes.
    pub page_size: PageSize,
}

/// Parses the lines that describe regions; the order of the fields differs between JDK 11 and 25.
///
/// `Card Table: req_size=2M base=0x00007f39b0e00000 page_size=2M alignment=2M size=2M`
pub fn parse(text: &str) -> Vec<LoggedRegion> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<LoggedRegion> {
    let (name, fields) = line.split_once(": ")?;
    let field = |key: &str| {
        fields.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    };
    // Decorations, if any, end with a bracket.
    let name = name.rsplit(']').next().unwrap_or(name).trim();
    Some(LoggedRegion {
        name: name.to_owned(),
        base: u64::from_str_radix(field("base")?.strip_prefix("0x")?, 16).ok()?,
        size: field("size")?.parse().ok()?,
        min: field("min").and_then(|min| min.parse().ok()),
        page_size: field("page_size")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_era_is_read() -> Result<(), Box<dyn Error>> {
        for (text, min) in [
            ("Card Table:  min=2M max=2M base=0x00007f39b0e00000 page_size=2M size=2M", Some("2m")),
            (
                "[0.012s][info][pagesize] Card Table: req_size=2M base=0x00007f39b0e00000 page_size=2M alignment=2M size=2M",
                None,
            ),
            ("Card Table: req_size=2M req_page_size=4K base=0x00007f39b0e00000 size=2M page_size=2M", None),
        ] {
            let read = parse(text);
            let expected = LoggedRegion {
                name: "Card Table".to_owned(),
                base: 0x7f39_b0e0_0000,
                size: "2m".parse()?,
                min: min.map(str::parse).transpose()?,
                page_size: "2m".parse()?,
            };
            assert_eq!(read, [expected], "{text}");
        }
        assert_eq!(
            parse("CodeHeap 'non-nmethods':  min=4M max=6M base=0x1000 page_size=4K size=6M").len(),
            1
        );
        assert_eq!(parse("Using the default large page size: 2M\nHeap: base=0x size=1G page_size=2M"), []);
        Ok(())
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "(.|\n)*") {
            let _ = parse(&text);
        }
    }
}
