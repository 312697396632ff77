//! The NUMA node and the name of reserved memory.

use std::ffi::CString;

/// The NUMA node and the name of reserved memory.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// The only NUMA node to allocate from; `None` for any.
    pub node: Option<u32>,
    /// The name in /proc/PID/maps, after `hugewise`; `None` for `hugewise` alone.
    pub name: Option<String>,
}

impl Placement {
    /// The name as the kernel accepts it: at most 80 bytes with the final zero, printable, without `[]\$` and
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
