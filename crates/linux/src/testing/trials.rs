//! Tests that can find while they run that they cannot measure: *skipped* is an outcome of its own, with its
//! reason, counted and listed at the end. So is *left out*: a case of a matrix that runs only in a full run.

#![allow(clippy::print_stdout)]

use std::{
    any::Any,
    env,
    error::Error,
    fs::OpenOptions,
    io::{self, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    time::Instant,
};

use libtest_mimic::Arguments;

use crate::{proc::task_stat::TaskStat, root::Root, sys::process::ticks_per_second};

/// Environment variable with a file to which each test that is skipped or left out adds a line: its name, a tab and
/// the reason.
pub const SKIPS: &str = "HUGEWISE_SKIPS";
/// Environment variable of full runs: `1` runs all cases of each matrix.
const FULL: &str = "HUGEWISE_FULL";
/// The reason of a test that is left out. `scripts/skips` lists these tests apart.
const LEFT_OUT: &str = "left out";

pub type TestResult = Result<(), Box<dyn Error>>;

/// Why a test could not measure what it is for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("skipped: {0}")]
pub struct Skipped(pub String);

/// The end of a test that cannot measure, for example because there is too little memory.
pub fn skip<T>(reason: impl ToString) -> Result<T, Box<dyn Error>> {
    Err(Skipped(reason.to_string()).into())
}

/// Whether this is a full run.
pub fn is_full() -> bool {
    env::var_os(FULL).is_some_and(|value| value == "1")
}

/// Whether the case at index `at` of an axis with `values` values represents the others in a run that is not full.
/// `others` is the sum of its indices on the other axes: each value of each axis then has such a case.
pub fn represents(at: usize, values: usize, others: usize) -> bool {
    at == others % values
}

/// A test.
pub struct Trial {
    name: String,
    missing: Option<String>,
    is_left_out: bool,
    test: Box<dyn FnOnce() -> TestResult>,
}

/// The result of a test.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
    LeftOut,
}

impl Trial {
    /// A test, or why it cannot run on this machine.
    pub fn new(
        name: impl Into<String>,
        missing: Option<String>,
        test: impl FnOnce() -> TestResult + 'static,
    ) -> Trial {
        Trial { name: name.into(), missing, is_left_out: false, test: Box::new(test) }
    }

    /// Leaves the test out of a run that is not full, unless it represents others that are left out.
    pub fn representing(self, represents: bool) -> Trial {
        Trial { is_left_out: !represents && !is_full(), ..self }
    }

    /// Runs the test, unless it cannot run on this machine.
    pub fn outcome(self) -> Outcome {
        if self.is_left_out {
            return Outcome::LeftOut;
        }
        if let Some(reason) = self.missing {
            return Outcome::Skipped(reason);
        }
        match catch_unwind(AssertUnwindSafe(self.test)) {
            Ok(Ok(())) => Outcome::Passed,
            Ok(Err(error)) => match error.downcast::<Skipped>() {
                Ok(skipped) => Outcome::Skipped(skipped.0),
                Err(error) => Outcome::Failed(error.to_string()),
            },
            Err(panic) => Outcome::Failed(message(&*panic)),
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    format!(
        "panicked: {}",
        text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
    )
}

/// Runs the selected tests one after another and lists those that failed or were skipped.
pub fn run(arguments: &Arguments, trials: Vec<Trial>) -> ExitCode {
    let selected = trials.into_iter().filter(|trial| is_selected(arguments, &trial.name));
    if arguments.list {
        selected.for_each(|trial| println!("{}: test", trial.name));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut left_out, mut failed, mut skipped) = (0, 0, Vec::new(), Vec::new());
    let begin = Instant::now();
    println!();
    for trial in selected {
        let (name, begin, cpu_before) = (trial.name.clone(), Instant::now(), cpu_seconds());
        print!("test {name} ... ");
        let _ = io::stdout().flush();
        let outcome = trial.outcome();
        // On a shared machine the CPU time is steadier than the duration.
        let cost = format!("{:.1} s, CPU {:.1} s", begin.elapsed().as_secs_f64(), cpu_seconds() - cpu_before);
        match outcome {
            Outcome::Passed => {
                passed += 1;
                println!("ok ({cost})");
            }
            Outcome::Failed(reason) => {
                // At once: the rest may take an hour.
                println!("FAILED ({cost}): {}", first_line(&reason));
                failed.push((name, reason));
            }
            Outcome::Skipped(reason) => {
                println!("skipped: {reason}");
                note(&name, &reason);
                skipped.push((name, reason));
            }
            Outcome::LeftOut => {
                left_out += 1;
                println!("left out ({FULL}=1 runs it)");
                note(&name, LEFT_OUT);
            }
        }
    }
    if !skipped.is_empty() {
        println!("\nskipped:");
    }
    for (name, reason) in &skipped {
        println!("    {name}: {}", first_line(reason));
    }
    // Last: often only the end of a log is kept.
    for (name, reason) in &failed {
        println!("\n---- failed: {name} ----\n{reason}");
    }
    println!(
        "\ntest result: {}. {passed} passed; {} failed; {} skipped; {left_out} left out; finished in {:.2}s\n",
        if failed.is_empty() { "ok" } else { "FAILED" },
        failed.len(),
        skipped.len(),
        begin.elapsed().as_secs_f64()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// CPU time of this process and of those that it has started and that have ended.
fn cpu_seconds() -> f64 {
    let text = Root::live().read("proc/self/stat").unwrap_or_default();
    let ticks = TaskStat::parse(&text).map_or(0, |stat| {
        stat.user_ticks + stat.sys_ticks + stat.children_user_ticks + stat.children_sys_ticks
    });
    ticks as f64 / ticks_per_second() as f64
}

fn is_selected(arguments: &Arguments, name: &str) -> bool {
    let matches = |filter: &String| if arguments.exact { name == filter } else { name.contains(filter) };
    arguments.filter.as_ref().is_none_or(matches) && !arguments.skip.iter().any(matches)
}

/// Reports a part of a test of the standard harness that is skipped, past the capture of its output.
pub fn skip_part(name: &str, reason: &str) {
    let _ = writeln!(io::stderr(), "skipped: {name}: {reason}");
    note(name, reason);
}

/// Adds a line to the file of skipped tests, if there is one.
fn note(name: &str, reason: &str) {
    let Some(file) = env::var_os(SKIPS) else { return };
    let line = format!("{name}\t{}\n", reason.replace(['\n', '\t'], " "));
    let added = OpenOptions::new().create(true).append(true).open(file);
    if let Err(error) = added.and_then(|mut file| file.write_all(line.as_bytes())) {
        let _ = writeln!(io::stderr(), "{SKIPS}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_left_out_test_does_not_run() {
        let test = |represents| Trial::new("a test", None, || Err("it ran".into())).representing(represents);
        assert_eq!(test(true).outcome(), Outcome::Failed("it ran".to_owned()));
        let expected = if is_full() { Outcome::Failed("it ran".to_owned()) } else { Outcome::LeftOut };
        assert_eq!(test(false).outcome(), expected);
    }

    #[test]
    fn each_value_of_each_axis_is_represented() {
        for jdk in 0..2 {
            let backings: Vec<usize> = (0..5)
                .flat_map(|collector| (0..3).filter(move |at| represents(*at, 3, jdk + collector)))
                .collect();
            assert_eq!(backings.len(), 5, "each collector has one backing: {backings:?}");
            assert!((0..3).all(|backing| backings.contains(&backing)), "{backings:?}");
        }
    }

    #[test]
    fn a_skipped_test_has_neither_passed_nor_failed() {
        let outcome = |missing: Option<&str>, test: fn() -> TestResult| {
            Trial::new("a test", missing.map(str::to_owned), test).outcome()
        };
        assert_eq!(outcome(None, || Ok(())), Outcome::Passed);
        assert_eq!(outcome(None, || skip("no memory")), Outcome::Skipped("no memory".to_owned()));
        assert_eq!(outcome(Some("no JDK"), || Ok(())), Outcome::Skipped("no JDK".to_owned()));
        assert_eq!(outcome(None, || Err("wrong".into())), Outcome::Failed("wrong".to_owned()));
        let panicked = outcome(None, || {
            assert!(std::hint::black_box(false), "so {}", "wrong");
            Ok(())
        });
        assert_eq!(panicked, Outcome::Failed("panicked: so wrong".to_owned()));
    }
}
