//! Command lines and logs: no panic, a secret behind its name is removed, and what is removed stays so.

#![no_main]

use hugewise_texts::secrets;
use libfuzzer_sys::fuzz_target;

const SECRET: &str = "hunter2hunter2";

fuzz_target!(|text: &str| {
    for named in [format!("{text}\npassword={SECRET}"), format!("{text} --api-key={SECRET} x")] {
        let plain = secrets::without(&named).into_owned();
        assert!(!plain.contains(SECRET) || text.contains(SECRET), "{plain}");
    }
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    assert_eq!(secrets::without_in_words(&words).len(), words.len());
});
