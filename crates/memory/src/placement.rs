//! Where memory is to come from, and what it is called.

use std::ffi::CString;

/// Where memory is to come from, and what it is called.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// The NUMA node that all of it is to come from.
    pub node: Option<u32>,
    /// Its name in /proc/PID/maps, after `hugewise`.
    pub name: Option<String>,
}

impl Placement {
    /// What the kernel takes as a name: up to 80 bytes with the zero, printable, and none of `[]\$` and
    /// the backquote.
    pub(crate) fn full_name(&self) -> CString {
        let name =
            self.name.as_ref().map_or_else(|| "hugewise".to_owned(), |name| format!("hugewise {name}"));
        let taken =
            |c: char| if c == ' ' || (c.is_ascii_graphic() && !r"[]\$`".contains(c)) { c } else { '_' };
        CString::new(name.chars().take(79).map(taken).collect::<String>()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_becomes_one_that_the_kernel_takes() {
        let full = |name: Option<&str>| Placement { node: None, name: name.map(str::to_owned) }.full_name();
        assert_eq!(full(None).as_c_str(), c"hugewise");
        assert_eq!(full(Some("row [cache]\0ü")).as_c_str(), c"hugewise row _cache___");
        assert_eq!(full(Some(&"x".repeat(200))).count_bytes(), 79);
    }
}
