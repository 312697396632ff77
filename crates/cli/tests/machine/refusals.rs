//! Commands that cannot be carried out end with an error and the next step, and change nothing.

use crate::{
    TestResult, Trial,
    needs::Need::{Pool, Root},
    start::{run, says},
    trial,
};

/// Description, arguments, and texts that the message must contain.
type Refusal = (&'static str, &'static [&'static str], &'static [&'static str]);

/// Refused before any run.
const AT_ONCE: [Refusal; 12] = [
    ("unknown backing", &["compare", "-b", "giant"], &["giant", "hugetlb[:SIZE]"]),
    ("size that no machine has", &["compare", "-b", "hugetlb:64KiB"], &["hugetlb:64KiB", "2MiB"]),
    ("no command after --", &["compare", "--metric", "a=b", "--"], &["--metric", "COMMAND"]),
    ("parameters without a command", &["compare", "-L", "a", "1,2"], &["--parameter-list", "COMMAND"]),
    ("parameter that is nowhere", &["compare", "-L", "a", "1,2", "--", "true"], &["{a}"]),
    ("regex that is none", &["compare", "--metric", "a=(", "--", "true"], &["metric 'a'", "unclosed group"]),
    ("metric without a name", &["compare", "--metric", "=x", "--", "true"], &["NAME=REGEX"]),
    ("no rounds", &["compare", "--rounds", "0"], &["at least 1"]),
    ("no bytes", &["compare", "--bytes", "0"], &["--bytes 0"]),
    ("no time", &["compare", "--timeout", "0", "--", "true"], &["positive number of seconds"]),
    ("report in no folder", &["compare", "--html", "/nowhere/at/all.html"], &["/nowhere/at", "No such file"]),
    ("result of JMH that is not there", &["compare", "--jmh", "/nowhere", "--", "true"], &["-rff /nowhere"]),
];

/// Detected when the command runs.
const BY_RUNNING: [Refusal; 7] = [
    ("command that does not exist", &["--", "no-such-program"], &["no-such-program", "could not be started"]),
    ("file that is not a program", &["--", "/etc/passwd"], &["/etc/passwd", "Permission denied"]),
    (
        "command that fails",
        &["--", "sh", "-c", "echo out of luck >&2; exit 3"],
        &["sh on base", "exit status: 3", "out of luck"],
    ),
    ("command that crashes", &["--", "sh", "-c", "kill -s SEGV $$"], &["SIGSEGV"]),
    (
        "command that hangs",
        &["--timeout", "5", "--", "sh", "-c", "echo so far; sleep 100"],
        &["longer than 5 s", "so far"],
    ),
    (
        "metric that never matches",
        &["--metric", "ops/s=rate ([0-9]+)", "--", "echo", "no figures"],
        &["metric 'ops/s'", "nothing in the output matches", "no figures"],
    ),
    (
        "metric that is not a number",
        &["--metric", "ops/s=r.*", "--", "echo", "rate 7"],
        &["metric 'ops/s'", "'rate 7' is not a number", "( )"],
    ),
];

pub fn trials() -> Vec<Trial> {
    let at_once = AT_ONCE.iter().map(|(what, arguments, said)| {
        trial(&format!("refused: {what}"), &[], move || refused(arguments, said))
    });
    let by_running = BY_RUNNING.iter().map(|(what, arguments, said)| {
        trial(&format!("refused: {what}"), &[Root, Pool], move || {
            refused(&[&["compare", "--rounds", "1"], *arguments].concat(), said)?;
            Ok(())
        })
    });
    at_once.chain(by_running).collect()
}

fn refused(arguments: &[&str], said: &[&str]) -> TestResult {
    let ran = run(arguments)?.ended_with(2)?;
    assert_eq!(ran.stdout, "", "no result is printed");
    says(&ran.stderr, said)
}
