//! Tests that leave the machine's settings as they were.

use hugewise_linux::testing::trials::{TestResult, Trial};

use crate::{
    needs::{Need, missing},
    settings::Snapshot,
};

/// A test that must leave all settings unchanged, or that is skipped.
pub fn trial(name: &str, needs: &[Need], test: impl FnOnce() -> TestResult + Send + 'static) -> Trial {
    let reasons: Vec<String> = needs.iter().filter_map(|need| missing(*need)).collect();
    let missing = (!reasons.is_empty()).then(|| reasons.join("; "));
    Trial::new(name, missing, move || preserving(test))
}

/// Runs `test` and checks that the machine's settings are unchanged.
fn preserving(test: impl FnOnce() -> TestResult) -> TestResult {
    let before = Snapshot::take()?;
    let outcome = test();
    let preserved = before.is_preserved();
    match (outcome, preserved) {
        (Err(error), Err(difference)) => Err(format!("{error}\n{difference}").into()),
        (outcome, preserved) => preserved.and(outcome),
    }
}
