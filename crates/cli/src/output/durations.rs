//! Durations, as all commands print them.

/// `1.2 µs`, `1.2 ms`, `1.23 s`.
pub fn duration(ns: u64) -> String {
    match ns {
        0..=999_999 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..=999_999_999 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// `1.234`, in seconds.
pub fn seconds(ns: u64) -> String {
    decimals(ns as f64 / 1e9)
}

/// `1.234`, in milliseconds.
pub fn milliseconds(ns: u64) -> String {
    decimals(ns as f64 / 1e6)
}

/// Three significant digits, at most three decimals.
fn decimals(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}
