//! Formatting of times, speeds and thread counts.

/// A time with three significant digits in ms or s, or as minutes, hours or days.
pub fn time(seconds: f64) -> String {
    let digits = |value: f64| {
        let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
        format!("{value:.decimals$}")
    };
    let rounded = seconds.round();
    match seconds {
        s if s < 0.9995 => format!("{} ms", digits(s * 1e3)),
        s if s < 119.5 => format!("{} s", digits(s)),
        s if s < 2.0 * 3600.0 => format!("{:.0} min {:.0} s", (rounded / 60.0).floor(), rounded % 60.0),
        s if s < 48.0 * 3600.0 => {
            let minutes = (s / 60.0).round();
            format!("{:.0} h {:.0} min", (minutes / 60.0).floor(), minutes % 60.0)
        }
        s => format!("{:.0} days", s / 86_400.0),
    }
}

/// `1 thread`, `2 threads`.
pub fn threads(count: usize) -> String {
    if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_fitting_units() {
        let reported = [0.000_012, 0.25, 1.0, 42.0, 200.0, 3.0 * 3600.0, 1e6].map(time);
        assert_eq!(reported, ["0.01 ms", "250 ms", "1.00 s", "42.0 s", "3 min 20 s", "3 h 0 min", "12 days"]);
    }
}
