//! Pressure stall information (PSI) of memory: /proc/pressure/memory.
//!
//! Source: `Documentation/accounting/psi.rst`. PSI may be compiled in and disabled.

use std::time::Duration;

use crate::root::{ReadError, Root};

pub const MEMORY: &str = "proc/pressure/memory";

/// Total time since boot in which tasks waited for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// At least one task waited.
    pub some: Duration,
}

/// ENOENT if the kernel has no PSI, EOPNOTSUPP if it is disabled.
pub fn read(root: &Root) -> Result<Pressure, ReadError> {
    let text = root.read(MEMORY)?;
    let first = text.lines().next().unwrap_or_default();
    parse(&text).ok_or_else(|| root.content(MEMORY, 1, "some avg10= avg60= avg300= total=", first))
}

/// `None` if the text is not in the documented format.
pub fn parse(text: &str) -> Option<Pressure> {
    let some = text.lines().find_map(|line| {
        let total = line.strip_prefix("some ")?.split(' ').find_map(|word| word.strip_prefix("total="))?;
        total.trim().parse().ok().map(Duration::from_micros)
    });
    some.map(|some| Pressure { some })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tree;

    #[test]
    fn the_time_that_some_waited_is_read() {
        let text = "some avg10=0.13 avg60=0.51 avg300=0.17 total=8673510\n\
                    full avg10=0.10 avg60=0.37 avg300=0.12 total=5381263\n";
        let (_dir, root) = tree(&[(MEMORY, text)]);
        assert_eq!(read(&root).ok(), Some(Pressure { some: Duration::from_micros(8_673_510) }));
        let (_dir, none) = tree(&[]);
        assert!(read(&none).is_err_and(|error| error.is_absent()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_makes_it_panic(text in any::<String>()) {
            let (_dir, root) = tree(&[(MEMORY, &text)]);
            let _ = read(&root);
            let (_dir, root) = tree(&[(MEMORY, &format!("some total={text}"))]);
            let _ = read(&root);
        }
    }
}
