//! Counts, amounts, shares and shortened names, as all commands print them.

use hugewise_linux::units::Bytes;

/// `88,704`
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 pause`, `2 pauses`.
pub fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

/// An amount; zero is printed as a dash.
pub fn amount(bytes: Bytes) -> String {
    if bytes == Bytes::ZERO { "–".to_owned() } else { bytes.to_string() }
}

/// A percentage that is never rounded to 0 % or 100 %; `absent` is the text for `None`.
pub fn coverage(share: Option<f64>, absent: &str) -> String {
    match share {
        None => absent.to_owned(),
        Some(share) if share > 0.0 && share < 0.01 => "<1 %".to_owned(),
        Some(share) if share > 0.99 && share < 1.0 => ">99 %".to_owned(),
        Some(share) => format!("{:.0} %", share * 100.0),
    }
}

/// Shortens a path at its start, and other text at its end, to `width` characters.
pub fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let keep = width.saturating_sub(1);
    // A command line that begins with a path is not a path.
    match text.starts_with('/') && !text.contains(' ') {
        true => format!("…{}", text.chars().skip(length - keep).collect::<String>()),
        false => text.chars().take(keep).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_coverage_is_not_rounded_to_0_or_100_percent() {
        let shown = [None, Some(0.0), Some(0.001), Some(0.5), Some(0.9999), Some(1.0)]
            .map(|share| coverage(share, "unknown"));
        assert_eq!(shown, ["unknown", "0 %", "<1 %", "50 %", ">99 %", "100 %"]);
    }

    #[test]
    fn paths_keep_their_end_and_other_text_its_start() {
        assert_eq!(shortened("/opt/java/bin/java", 6), "…/java");
        assert_eq!(shortened("Pause Young", 6), "Pause…");
        assert_eq!(shortened("heap", 4), "heap");
    }
}
