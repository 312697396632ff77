//! Quoting for systemd.

use hugewise_linux::printable::is_printable;

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
            c if is_printable(c) => text.push(c),
            c if c.is_ascii() => text.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => text.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    text + "\""
}
