use proptest::prelude::*;

use super::*;

/// A struct in its current version; the first version had the first two fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Now {
    struct_size: u64,
    old: u64,
    new: u64,
}

impl Default for Now {
    fn default() -> Now {
        Now { struct_size: 24, old: 1, new: 2 }
    }
}

const FIRST: usize = 16;

proptest! {
    /// Programs compiled with older and newer headers; `words` is their struct.
    #[test]
    fn a_struct_of_any_version_is_read_and_written(words in proptest::collection::vec(0u64..3, 2..6)) {
        let mut words = words;
        words[0] = words.len() as u64 * 8;
        let at = words.as_mut_ptr().cast::<Now>();
        // SAFETY: the first word holds the size of the words.
        let read = unsafe { copy_versioned(at.cast_const(), FIRST, "it") };
        if words.iter().skip(3).any(|word| *word != 0) {
            let unknown = read.is_err_and(|failure| format!("{failure:?}").contains("does not have"));
            prop_assert!(unknown);
        } else {
            let expected = Now { struct_size: words[0], old: words[1], new: words.get(2).copied().unwrap_or(2) };
            prop_assert_eq!(read.ok(), Some(expected));
        }
        // SAFETY: as above.
        let place = unsafe { VersionedOutput::new(at, FIRST, "it") }.ok().flatten();
        if let Some(place) = place {
            place.write(&Now { struct_size: 99, old: 8, new: 9 });
        }
        let expected: Vec<u64> = [words[0], 8, 9, 0, 0].into_iter().take(words.len()).collect();
        prop_assert_eq!(words, expected);
    }
}

#[test]
fn a_size_that_was_not_set_is_seen() {
    for size in [0, 15, 4097, u64::MAX] {
        let mut value = Now { struct_size: size, ..Now::default() };
        // SAFETY: the first field is valid, and nothing else is read.
        let refused = unsafe { copy_versioned(&raw const value, FIRST, "it").is_err() };
        // SAFETY: as above.
        let refused_to_write = unsafe { VersionedOutput::new(&raw mut value, FIRST, "it").is_err() };
        assert!(refused && refused_to_write, "{size}");
    }
}
