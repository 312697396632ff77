//! Launch lines with an argument file: no panic, and without one they read back as they were.

#![no_main]

use hugewise_jvm::launch::LaunchLine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<String>, &str)| {
    let (words, file) = input;
    let command: Vec<String> = std::iter::once("java".to_owned()).chain(words).collect();
    let line = LaunchLine::parse(&command, &|_| Ok(file.to_owned()));
    if let (Some(Ok(line)), false) = (line, command.iter().any(|word| word.starts_with('@'))) {
        assert_eq!(line.command(), command);
    }
});
