//! The built program on the real kernel's pools and THP settings.
//!
//! Every test reads the machine's settings before and compares them after. Tests that cannot run here, or find that
//! they cannot measure, are skipped and listed with the reason. Matrices of JDKs, collectors, backings and sizes run
//! whole only in a full run (`HUGEWISE_FULL=1`); otherwise a part of each runs, and the other cases are listed as left
//! out. Every value of each axis occurs in the part, or in tests of another file; sizes of databases do not. Other
//! hugewise processes may run at the same time: the tests wait for them, up to ten minutes.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod allocation;
mod apply;
mod apply_killed;
mod capture;
mod collapse;
mod collapse_heap;
mod container;
mod databases;
mod ending;
mod evidence;
mod explain;
mod fragmentation;
mod gclog;
mod groups;
mod inspect;
mod java;
mod kernel_tools;
mod killed;
mod launch;
mod limits;
mod live;
mod live_killed;
mod live_limits;
mod mariadb;
mod memory;
mod memory_limit;
mod native;
mod other_user;
mod plan;
mod plan_running;
mod postgres;
mod pretouch;
mod program;
mod reasons;
mod record;
mod record_killed;
mod refusals;
mod regions;
mod report;
mod restore;
mod restore_hostile;
mod run;
mod run_report;
mod schemas;
mod script;
mod server;
mod server_killed;
mod split;
mod storms;
mod tlb;
mod touch;
mod trace;
mod tracking;
mod unit;
mod unit_users;
mod untouched;
mod without;

#[path = "../common/compiling.rs"]
mod compiling;
#[path = "../common/documents.rs"]
mod documents;
#[path = "../common/killed_comparison.rs"]
mod killed_comparison;
#[path = "../common/memory_group.rs"]
mod memory_group;
#[path = "../common/needs.rs"]
mod needs;
#[path = "../common/preserving.rs"]
mod preserving;
#[path = "../common/settings.rs"]
mod settings;
#[path = "../common/start.rs"]
mod start;
#[path = "../common/systemd.rs"]
mod systemd;

use std::process::ExitCode;

use hugewise_linux::testing::trials::{self, Skipped, TestResult, Trial, is_full, represents, skip};
use libtest_mimic::Arguments;

use crate::preserving::trial;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let all = [
        native::trials(),
        java::trials(),
        other_user::trials(),
        plan::trials(),
        plan_running::trials(),
        postgres::trials(),
        mariadb::trials(),
        explain::trials(),
        untouched::trials(),
        program::trials(),
        run::trials(),
        run_report::trials(),
        script::trials(),
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
        restore_hostile::trials(),
        killed::trials(),
        launch::trials(),
        container::trials(),
        fragmentation::trials(),
        inspect::trials(),
        gclog::trials(),
        memory::trials(),
        memory_limit::trials(),
        groups::trials(),
        reasons::trials(),
        record::trials(),
        record_killed::trials(),
        report::trials(),
        server::trials(),
        server_killed::trials(),
        unit::trials(),
        unit_users::trials(),
        storms::trials(),
        trace::trials(),
        kernel_tools::trials(),
        capture::trials(),
        collapse::trials(),
        collapse_heap::trials(),
        split::trials(),
        allocation::trials(),
        live::trials(),
        live_killed::trials(),
        live_limits::trials(),
        limits::trials(),
        schemas::trials(),
    ];
    trials::run(&arguments, all.into_iter().flatten().collect())
}

/// Attempts a test again after failures that `is_known` recognises as caused by other programs, up to three
/// times in all; prints each attempt. If the last one fails in this way, the test could not measure.
fn with_attempts(
    is_known: impl Fn(&str) -> Option<&'static str>,
    test: impl Fn() -> TestResult,
) -> TestResult {
    const ATTEMPTS: u32 = 3;
    for attempt in 1..=ATTEMPTS {
        let Err(error) = test() else { return Ok(()) };
        let text = error.to_string();
        let Some(cause) = is_known(&text).filter(|_| !error.is::<Skipped>()) else { return Err(error) };
        println!("attempt {attempt} of {ATTEMPTS}: {cause}: {text}");
        if attempt == ATTEMPTS {
            return skip(format!("{cause}, {ATTEMPTS} times"));
        }
    }
    Ok(())
}
