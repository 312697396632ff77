//! Bytes, pages and page sizes, as separate types.

use std::{fmt, ops, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An amount of memory in bytes, printed in IEC units (`2MiB`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A number of pages; their size is given by the context.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Pages(pub u64);

/// A page size in bytes: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct PageSize(u64);

/// Seconds of a duration in nanoseconds.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    #[error("'{0}' is not a size: write a number and a unit, like 2MiB, 1g or 4096")]
    Syntax(String),
    /// More than 2⁶⁴ bytes.
    #[error("'{0}' exceeds the address space of this machine")]
    Overflow(String),
    #[error("a page size is a power of two: {0} is not")]
    NotAPowerOfTwo(Bytes),
}

const UNITS: [(&str, u32); 7] =
    [("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("PiB", 50), ("EiB", 60)];

impl Bytes {
    pub const ZERO: Bytes = Bytes(0);

    /// An amount in KiB, which /proc and /sys print as `kB`.
    pub fn from_kib(kib: u64) -> Bytes {
        Bytes(kib.saturating_mul(1024))
    }

    /// The minimum number of pages of `size` that hold this amount.
    pub fn pages_needed(self, size: PageSize) -> Pages {
        Pages(self.0.div_ceil(size.0))
    }

    /// The maximum number of whole pages of `size` in this amount.
    pub fn whole_pages(self, size: PageSize) -> Pages {
        Pages(self.0 / size.0)
    }

    /// Rounded up to a multiple of `size`; `None` on overflow.
    #[must_use]
    pub fn align_up(self, size: PageSize) -> Option<Bytes> {
        self.0.checked_next_multiple_of(size.0).map(Bytes)
    }

    /// The share of `whole`, from 0 to 1; `None` if `whole` is 0.
    pub fn share_of(self, whole: Bytes) -> Option<f64> {
        (whole.0 > 0).then(|| self.0 as f64 / whole.0 as f64)
    }
}

impl fmt::Display for Bytes {
    /// An integer in the largest unit that divides the amount, or one decimal in the largest unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = (self.0.checked_ilog2().unwrap_or(0) / 10) as usize;
        let (name, shift) = UNITS[unit.min(UNITS.len() - 1)];
        let text = if self.0 % (1 << shift) == 0 {
            format!("{}{name}", self.0 >> shift)
        } else {
            format!("{:.1}{name}", self.0 as f64 / (1u64 << shift) as f64)
        };
        f.pad(&text)
    }
}

impl FromStr for Bytes {
    type Err = SizeError;

    /// `2MiB`, `2M`, `2m`, `2MB`, `2048kB` and `2097152` are the same amount: units are powers of 1024, as in
    /// the kernel and the JVM.
    fn from_str(text: &str) -> Result<Bytes, SizeError> {
        let syntax = || SizeError::Syntax(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        if number.is_empty() {
            return Err(syntax());
        }
        let number: u64 = number.parse().map_err(|_| SizeError::Overflow(text.to_owned()))?;
        let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(syntax()),
        };
        number.checked_mul(1 << shift).map(Bytes).ok_or_else(|| SizeError::Overflow(text.to_owned()))
    }
}

/// Sums and differences, which saturate.
macro_rules! saturating_arithmetic {
    ($amount:ident) => {
        impl $amount {
            #[must_use]
            pub fn saturating_sub(self, other: $amount) -> $amount {
                $amount(self.0.saturating_sub(other.0))
            }
        }

        impl ops::Add for $amount {
            type Output = $amount;
            fn add(self, other: $amount) -> $amount {
                $amount(self.0.saturating_add(other.0))
            }
        }

        impl ops::AddAssign for $amount {
            fn add_assign(&mut self, other: $amount) {
                *self = *self + other;
            }
        }

        impl std::iter::Sum for $amount {
            fn sum<I: Iterator<Item = $amount>>(amounts: I) -> $amount {
                amounts.fold($amount(0), ops::Add::add)
            }
        }
    };
}

saturating_arithmetic!(Bytes);
saturating_arithmetic!(Pages);

impl PageSize {
    /// Fails unless `bytes` is a power of two.
    pub fn new(bytes: Bytes) -> Result<PageSize, SizeError> {
        if bytes.0.is_power_of_two() { Ok(PageSize(bytes.0)) } else { Err(SizeError::NotAPowerOfTwo(bytes)) }
    }

    pub fn bytes(self) -> Bytes {
        Bytes(self.0)
    }

    /// log₂ of the size, for `mmap` and `shmget`.
    pub fn log2(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// The size in file names of /sys: `2048kB`.
    pub fn sysfs(self) -> String {
        format!("{}kB", self.0 / 1024)
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

impl FromStr for PageSize {
    type Err = SizeError;
    fn from_str(text: &str) -> Result<PageSize, SizeError> {
        PageSize::new(text.parse()?)
    }
}

impl<'de> Deserialize<'de> for PageSize {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<PageSize, D::Error> {
        /// A number, or a text if it is the key of a JSON object.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum NumberOrText {
            Number(Bytes),
            Text(String),
        }
        match NumberOrText::deserialize(from)? {
            NumberOrText::Number(bytes) => PageSize::new(bytes),
            NumberOrText::Text(text) => text.parse(),
        }
        .map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ops::Mul<PageSize> for Pages {
    type Output = Bytes;
    fn mul(self, size: PageSize) -> Bytes {
        Bytes(self.0.saturating_mul(size.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for text in ["2MiB", "2m", "2M", "2MB", "2 MiB", "2048kB", "2097152"] {
            assert_eq!(text.parse(), Ok(Bytes(2 << 20)), "{text}");
        }
        for text in ["", "m", "2x", "-1", "1.5g", "2MiBs"] {
            assert!(matches!(text.parse::<Bytes>(), Err(SizeError::Syntax(_))), "{text}");
        }
        assert!(matches!("99999999999t".parse::<Bytes>(), Err(SizeError::Overflow(_))));
    }

    #[test]
    fn a_page_size_is_a_power_of_two() {
        assert!("3m".parse::<PageSize>().is_err());
        assert!("0".parse::<PageSize>().is_err());
        assert_eq!("2m".parse::<PageSize>().map(PageSize::sysfs), Ok("2048kB".to_owned()));
    }

    #[test]
    fn amounts_are_printed_in_iec_units() {
        let shown =
            [0, 1, 1023, 1024, 1536, 2 << 20, 1 << 30, (1 << 30) + 1, u64::MAX].map(|n| Bytes(n).to_string());
        assert_eq!(shown, ["0B", "1B", "1023B", "1KiB", "1.5KiB", "2MiB", "1GiB", "1.0GiB", "16.0EiB"]);
    }

    proptest! {
        #[test]
        fn whole_units_survive_print_and_parse(n in 0u64..1024, unit in 0usize..5) {
            let amount = Bytes(n << (10 * unit));
            prop_assert_eq!(amount.to_string().parse::<Bytes>(), Ok(amount));
        }

        #[test]
        fn parsing_never_panics(text in ".*") {
            let _ = text.parse::<Bytes>();
        }

        #[test]
        fn needed_pages_hold_the_bytes(n in 0u64..1 << 50, log in 12u32..31) {
            let size = PageSize(1 << log);
            let pages = Bytes(n).pages_needed(size);
            prop_assert!(pages * size >= Bytes(n));
            prop_assert!(Pages(pages.0.saturating_sub(1)) * size <= Bytes(n));
        }
    }
}
