//! What ordinary users, containers and services try against a hugewise of root: each test is an attack, or an accident
//! of the same kind, and fails if it has the effect that it aims at, if the settings of the machine differ afterwards, or
//! if a command does not end in time.
//!
//! The attackers are the programs in `helpers`, as uid 65534. `HUGEWISE_BINARY` names a program to test in place of the
//! built one. Tests that take seconds run only in a full run (`HUGEWISE_FULL=1`), except one of each kind.

mod bounded;
mod choices;
mod counters;
mod hostile;
mod journals;
mod namespaces;
mod reading;
mod remains;
mod restoring;
mod services;
mod silence;
mod terminals;
mod texts;
mod trees;
mod users;
mod waiting;

macro_rules! shared {
    ($($name:ident $path:literal),*) => {
        $(#[allow(dead_code, reason = "the machine tests use the rest")]
        #[path = $path]
        mod $name;)*
    };
}
shared!(
    compiling "../common/compiling.rs",
    documents "../common/documents.rs",
    killed_comparison "../common/killed_comparison.rs",
    memory_group "../common/memory_group.rs",
    needs "../common/needs.rs",
    preserving "../common/preserving.rs",
    settings "../common/settings.rs",
    start "../common/start.rs",
    systemd "../common/systemd.rs"
);

use std::{fs, path::Path, process::ExitCode};

use hugewise_linux::testing::trials::{self, TestResult, Trial, skip};
use libtest_mimic::Arguments;

use crate::{
    needs::Need,
    preserving::trial,
    settings::{APPLIED, JOURNAL, RECORDING},
    start::hugewise,
};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let all = [
        reading::trials(),
        choices::trials(),
        counters::trials(),
        trees::trials(),
        waiting::trials(),
        silence::trials(),
        namespaces::trials(),
        users::trials(),
        services::trials(),
        terminals::trials(),
        texts::trials(),
        remains::trials(),
        journals::trials(),
        restoring::trials(),
    ];
    trials::run(&arguments, all.into_iter().flatten().collect())
}

/// A test as root with a compiler, after which no setting differs, and no journal is left.
fn attack(name: &str, needs: &[Need], test: impl FnOnce() -> TestResult + Send + 'static) -> Trial {
    let needs = [&[Need::Root, Need::Compiler], needs].concat();
    trial(name, &needs, move || {
        let outcome = test();
        let left = left_behind();
        // The next test is to start with the machine as it was.
        if left.is_err() {
            let _ = hugewise(&["restore", "--force"]).output();
        }
        match (outcome, left) {
            (Err(error), Err(left)) => Err(format!("{error}\n{left}").into()),
            (outcome, left) => outcome.and(left),
        }
    })
}

/// Fails if a journal exists.
fn left_behind() -> TestResult {
    let left = [JOURNAL, RECORDING, APPLIED].into_iter().filter(|file| Path::new(file).exists());
    let texts: Vec<String> = left
        .map(|file| format!("{file} is left: {}", fs::read_to_string(file).unwrap_or_default()))
        .collect();
    if texts.is_empty() { Ok(()) } else { Err(texts.join("\n").into()) }
}
