//! Pressure: how much of the time somebody waited for memory, /proc/pressure/memory.
//!
//! Source: `Documentation/accounting/psi.rst`. It may be compiled in and switched off.

use std::time::Duration;

use crate::root::{ReadError, Root};

/// Where it stands.
pub const MEMORY: &str = "proc/pressure/memory";

/// For how long, since boot, tasks waited for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// At least one of them.
    pub some: Duration,
}

/// Reads it. ENOENT where the kernel has it not, EOPNOTSUPP where it is switched off.
pub fn read(root: &Root) -> Result<Pressure, ReadError> {
    let text = root.read(MEMORY)?;
    let first = text.lines().next().unwrap_or_default();
    parse(&text).ok_or_else(|| root.content(MEMORY, 1, "some avg10= avg60= avg300= total=", first))
}

/// Reads its text; nothing where that does not tell.
#[must_use]
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
