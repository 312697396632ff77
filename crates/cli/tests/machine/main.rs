//! The built program on the real kernel's pools and THP settings.
//!
//! Every test reads the machine's settings before and compares them after. Tests that cannot run here are
//! listed as ignored, with the reason in the name. Other hugewise processes may run at the same time: the
//! tests wait for them, up to ten minutes.

mod apply;
mod apply_killed;
mod collapse;
mod collapse_heap;
mod ending;
mod evidence;
mod explain;
mod fragmentation;
mod gclog;
mod inspect;
mod java;
mod kernel_tools;
mod killed;
mod memory;
mod memory_limit;
mod native;
mod needs;
mod plan;
mod pretouch;
mod program;
mod record;
mod record_killed;
mod refusals;
mod regions;
mod report;
mod restore;
mod run;
mod run_report;
mod schemas;
mod settings;
mod start;
mod storms;
mod tlb;
mod touch;
mod trace;
mod untouched;
mod without;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::{
    needs::{Need, missing},
    settings::Snapshot,
};

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Tests share the machine's settings.
    arguments.test_threads = Some(1);
    let all = [
        native::trials(),
        java::trials(),
        plan::trials(),
        explain::trials(),
        untouched::trials(),
        program::trials(),
        run::trials(),
        run_report::trials(),
        tlb::trials(),
        touch::trials(),
        pretouch::trials(),
        regions::trials(),
        evidence::trials(),
        refusals::trials(),
        without::trials(),
        ending::trials(),
        apply::trials(),
        apply_killed::trials(),
        restore::trials(),
        killed::trials(),
        fragmentation::trials(),
        inspect::trials(),
        gclog::trials(),
        memory::trials(),
        memory_limit::trials(),
        record::trials(),
        record_killed::trials(),
        report::trials(),
        storms::trials(),
        trace::trials(),
        kernel_tools::trials(),
        collapse::trials(),
        collapse_heap::trials(),
        schemas::trials(),
    ];
    libtest_mimic::run(&arguments, all.into_iter().flatten().collect()).exit_code()
}

/// A test that must leave all settings unchanged, or one that is listed as skipped.
fn trial(name: &str, needs: &[Need], test: impl FnOnce() -> TestResult + Send + 'static) -> Trial {
    let reasons: Vec<String> = needs.iter().filter_map(|need| missing(*need)).collect();
    if !reasons.is_empty() {
        let reason = reasons.join("; ");
        let skipped = reason.clone();
        return Trial::test(format!("{name} (skipped: {reason})"), move || Err(skipped.into()))
            .with_ignored_flag(true);
    }
    Trial::test(name, move || preserving(test).map_err(|error| Failed::from(error.to_string())))
}

/// Runs `test` and checks that the machine's settings are unchanged.
fn preserving(test: impl FnOnce() -> TestResult) -> TestResult {
    let before = Snapshot::take()?;
    let outcome = test();
    let preserved = before.is_preserved();
    match (outcome, preserved) {
        (Err(error), Err(difference)) => Err(format!("{error}\n{difference}").into()),
        (outcome, preserved) => outcome.and(preserved),
    }
}
