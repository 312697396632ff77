//! Lists of logs from a JVM or its command line: no panic, and no log without a name.

#![no_main]

use hugewise_jvm::log_control;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for log in log_control::listed(text).into_iter().chain(log_control::listed(&format!(" #2: file={text}")))
    {
        assert!(log.file.to_str().is_some_and(|name| !name.contains('\n')));
    }
    for option in ["-Xlog:", "-Xlog:gc*:file=", "-Xloggc:"] {
        let command = ["java".to_owned(), format!("{option}{text}")];
        if let Some(log) = log_control::of_command(&command, 7) {
            assert!(!log.file.to_string_lossy().contains("%t"));
        }
    }
});
