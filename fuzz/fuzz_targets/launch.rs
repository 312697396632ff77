//! Launch lines with wrappers, scripts and files of options: no panic, and a parsed line parses to the same
//! value again.

#![no_main]

use hugewise_jvm::launch::{LaunchLine, contradictions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<String>, Vec<String>, &str)| {
    let (before, behind, file) = input;
    let read = |_: &str| Ok(file.to_owned());
    let command: Vec<String> = before.into_iter().chain(["java".to_owned()]).chain(behind).collect();
    if let Some(Ok(line)) = LaunchLine::parse(&command, &read) {
        let again = LaunchLine::parse(&line.command(), &read).and_then(Result::ok);
        assert_eq!(again.as_ref(), Some(&line));
        if let Ok(effective) = line.effective(None, &|_| Some(file.to_owned()), &read) {
            let _ = contradictions(&effective);
        }
    }
});
