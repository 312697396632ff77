//! Quoting for systemd, and characters that no format prints.

/// Whether a character is invisible, or ends a line in one of the formats.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Quotes an assignment for `Environment=`.
///
/// Source: systemd.syntax(7), "Quoting"; systemd.unit(5), "Specifiers"; a dollar sign is not special
/// there, systemd.exec(5).
pub fn systemd_assignment(name: &str, value: &str) -> String {
    let mut text = format!("\"{name}=");
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str(r"\\"),
            '%' => text.push_str("%%"),
            '\n' => text.push_str(r"\n"),
            '\t' => text.push_str(r"\t"),
            c if c.is_ascii_control() => text.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => text.push(c),
        }
    }
    text + "\""
}
