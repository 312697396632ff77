//! Values in the place of parameters, `{NAME}`, in a command.

use std::collections::BTreeMap;

/// `command` with every `{NAME}` replaced.
pub fn substitute(command: &[String], values: &BTreeMap<String, String>) -> Vec<String> {
    let put = |word: &String| {
        values.iter().fold(word.clone(), |word, (name, value)| word.replace(&placeholder(name), value))
    };
    command.iter().map(put).collect()
}

/// A parameter in a command.
pub fn placeholder(name: &str) -> String {
    format!("{{{name}}}")
}
