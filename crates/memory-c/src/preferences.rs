//! A list of backings as text: `hugetlb:2MiB,thp,base`.

use hugewise_linux::hugepages::backing::{Backing, BackingError};

/// Parses a list of backings, in order of preference. Blanks around them are ignored; an empty list or entry
/// is an error.
pub fn parse(list: &str) -> Result<Vec<Backing>, BackingError> {
    list.split(',').map(|backing| backing.trim().parse()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn backing() -> impl Strategy<Value = Backing> {
        let size = proptest::option::of((12u32..40).prop_map(|log2| format!("{}", 1u64 << log2)));
        let sized = (prop_oneof![Just("hugetlb"), Just("shm")], size)
            .prop_filter_map("a size", |(word, size)| {
                size.map_or(word.to_owned(), |size| format!("{word}:{size}")).parse().ok()
            });
        prop_oneof![Just(Backing::Base), Just(Backing::Thp), sized]
    }

    proptest! {
        #[test]
        fn a_printed_list_is_read_back(list in proptest::collection::vec(backing(), 1..6), blanks in " {0,3}") {
            let words: Vec<String> = list.iter().map(|b| format!("{blanks}{b}{blanks}")).collect();
            prop_assert_eq!(parse(&words.join(",")), Ok(list));
        }

        #[test]
        fn any_text_is_a_list_or_names_its_mistake(text in "\\PC*|[a-z:,0-9GMkiB ]*") {
            if let Err(error) = parse(&text) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }

    #[test]
    fn an_empty_place_is_an_error() {
        for list in ["", " ", ",", "thp,", ",base", "thp,,base"] {
            let error = parse(list).map_err(|error| error.to_string());
            assert!(
                error.as_ref().is_err_and(|error| error.contains("'' is not a backing")),
                "{list}: {error:?}"
            );
        }
    }
}
