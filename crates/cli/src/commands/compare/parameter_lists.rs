//! `--parameter-list NAME V1,V2,…`: all combinations of values, inserted into a command.

use std::collections::BTreeMap;

use anyhow::ensure;
use hugewise_measure::comparison::parameters::placeholder;

/// All combinations of the values of `lists` (name, values, name, values, …), the last list changing fastest;
/// a single empty combination if there is no list.
pub fn combinations(lists: &[String], command: &[String]) -> anyhow::Result<Vec<BTreeMap<String, String>>> {
    let mut all = vec![BTreeMap::new()];
    for list in lists.chunks(2) {
        let [name, values] = list else { continue };
        ensure!(!name.is_empty() && !name.contains(['{', '}']), "--parameter-list: '{name}' is not a name");
        ensure!(
            command.iter().any(|word| word.contains(&placeholder(name))),
            "--parameter-list {name}: the command does not contain {{{name}}}"
        );
        ensure!(!all[0].contains_key(name), "--parameter-list {name}: given twice");
        ensure!(
            values.split(',').all(|value| !value.is_empty()),
            "--parameter-list {name}: a value is empty"
        );
        let with = |known: BTreeMap<String, String>| {
            let each = values.split(',').map(|value| (name.clone(), value.to_owned()));
            each.map(move |added| known.clone().into_iter().chain([added]).collect())
        };
        all = all.into_iter().flat_map(with).collect();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use hugewise_measure::comparison::parameters::substitute;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn every_combination_is_put_into_the_command() -> anyhow::Result<()> {
        let command = words("java -Xmx{heap} -XX:+Use{gc} Main");
        let all = combinations(&words("heap 1g,2g gc G1GC,ZGC"), &command)?;
        let commands: Vec<String> = all.iter().map(|values| substitute(&command, values).join(" ")).collect();
        assert_eq!(commands.len(), 4);
        assert_eq!(commands[1], "java -Xmx1g -XX:+UseZGC Main");
        assert_eq!(combinations(&[], &command)?.len(), 1);
        Ok(())
    }

    #[test]
    fn a_list_that_would_change_nothing_is_refused() {
        for lists in ["size 1,2", "heap 1,,2", "heap 1 heap 2"] {
            assert!(combinations(&words(lists), &words("java -Xmx{heap} Main")).is_err(), "{lists}");
        }
    }
}
