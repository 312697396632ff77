//! Files of /proc that are read by path, in a temporary folder: no panic.

#![no_main]

use hugewise_linux::{
    proc::{meminfo, process::Process},
    root::Root,
};
use libfuzzer_sys::fuzz_target;
use std::{fs, path::PathBuf, sync::OnceLock};

/// A captured machine, in the folder for temporary files, which fuzz/run places in memory and removes.
fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("hugewise-fuzz-{}", std::process::id()));
        fs::create_dir_all(folder.join("proc/7")).expect("a folder for temporary files");
        folder
    })
}

fuzz_target!(|input: (bool, &str)| {
    let (of_process, text) = input;
    let root = Root::at(folder());
    if of_process {
        let _ = fs::write(folder().join("proc/7/status"), format!("Name:\ta\nVmSize:\t4 kB\n{text}"));
        let _ = fs::write(folder().join("proc/7/cmdline"), text);
        let _ = Process::read(&root, 7);
    } else {
        let _ = fs::write(folder().join("proc/meminfo"), format!("Hugepagesize: 2048 kB\n{text}"));
        let _ = meminfo::read(&root);
    }
});
