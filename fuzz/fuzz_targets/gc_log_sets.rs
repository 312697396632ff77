//! Files of a log rotation with any names and timestamps: no panic, and each file occurs once.

#![no_main]

use hugewise_jvm::gc_log::sets::{FileTimes, arrange_by};
use libfuzzer_sys::fuzz_target;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

fuzz_target!(|files: Vec<(u8, bool, &str, &[u8], u8)>| {
    // Most names are of one set, as unified logging or JDK 8 rotate it.
    let name = |(index, current, free, _, _): &(u8, bool, &str, &[u8], u8)| {
        PathBuf::from(match (index % 8, current) {
            (0, _) => "gc.log".to_owned(),
            (7, _) => format!("{free}.{index}.gz"),
            (n, true) => format!("gc.log.{n}.current"),
            (n, false) => format!("gc.log.{n}"),
        })
    };
    let names: Vec<PathBuf> = files.iter().map(name).collect();
    let look = |path: &Path| match names.iter().position(|name| name == path) {
        Some(at) => {
            let (_, _, _, text, seconds) = files[at];
            let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into());
            FileTimes::in_text(text, text, Some(modified))
        }
        None => FileTimes::default(),
    };
    let sets = arrange_by(&names, &look);
    let arranged: Vec<&PathBuf> = sets.iter().flatten().collect();
    let given: BTreeSet<&PathBuf> = names.iter().collect();
    assert_eq!(arranged.len(), given.len());
    assert_eq!(arranged.into_iter().collect::<BTreeSet<_>>(), given);
    assert!(sets.iter().all(|set| !set.is_empty()));
});
