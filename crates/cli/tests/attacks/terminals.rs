//! Control sequences of terminals in names and answers of other users.

use std::{error::Error, fs, process::Command};

use crate::{
    TestResult, Trial, attack,
    bounded::{AT_ONCE, COMPARED, ends_within, within},
    hostile::Place,
    needs::Need::Thp,
    reading::{each, observing},
    start::{hugewise, program},
};

/// A title, a colour, C1 and bidirectional controls; as the name of a process it has 15 bytes.
pub const NAME: &str = "\u{1b}]0;t\u{7}\u{9b}1m\u{202e}";

pub fn trials() -> Vec<Trial> {
    vec![
        attack("terminals: the name of a process", &[Thp], names).representing(false),
        attack("terminals: answers of a JVM", &[], answers).representing(false),
        attack("terminals: output of a server", &[], server),
        attack("terminals: JSON on a terminal", &[], json),
    ]
}

/// Fails if the text has a control character, or one that changes the direction of text.
pub fn is_plain(what: &str, text: &str) -> TestResult {
    let acts = |letter: &char| {
        let is_bidirectional = matches!(letter, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        is_bidirectional || letter.is_control() && !matches!(letter, '\n' | '\t' | '\r')
    };
    let Some(line) = text.lines().find(|line| line.chars().any(|letter| acts(&letter))) else {
        return Ok(());
    };
    Err(format!("{what} prints {line:?}").into())
}

/// Fails if a terminal got control sequences of [`NAME`]; those of hugewise itself are allowed.
pub fn of_hugewise(arguments: &[&str], said: &str) -> TestResult {
    let parts = ["\u{1b}]0;", "\u{7}", "\u{9b}", "\u{202e}"];
    match parts.iter().find(|part| said.contains(**part)) {
        Some(part) => Err(format!("{arguments:?} prints {part:?} on a terminal").into()),
        None => Ok(()),
    }
}

/// Runs a command; fails if its output acts on a terminal.
pub fn plain(arguments: &[&str]) -> TestResult {
    let ended = within(COMPARED, arguments)?;
    is_plain(&format!("{arguments:?}"), &(ended.stdout + &ended.stderr))
}

fn names() -> TestResult {
    let place = Place::new()?;
    let (living, zombie) = (place.hostile("named", &[NAME])?, place.hostile("named", &[NAME, "zombie"])?);
    let mut results = Vec::new();
    for pid in [living.pid(), zombie.pid()] {
        let recording = place.text(&format!("{pid}.rec"));
        results.extend(observing(&pid, &recording).iter().map(|arguments| plain(arguments)));
        let others = [&["inspect", "--full"][..], &["inspect", "--attach"], &["collapse"], &["split"]];
        results.extend(others.iter().map(|words| plain(&[*words, &[&pid]].concat())));
        results.extend([plain(&["report", &recording])]);
    }
    each(results.into_iter())
}

fn answers() -> TestResult {
    let place = Place::new()?;
    let jvm = place.jvm("escapes")?;
    let (pid, recording) = (jvm.pid(), place.text("recording"));
    let commands = observing(&pid, &recording);
    let attached = [plain(&["inspect", "--attach", &pid])];
    each(attached.into_iter().chain(commands.iter().map(|arguments| plain(arguments))))
}

fn server() -> TestResult {
    let place = Place::new()?;
    let script =
        place.script("server", &format!("#!/bin/sh\necho '{NAME} out'; echo '{NAME} err' >&2; exit 3\n"))?;
    let words = [
        "compare",
        "--rounds",
        "1",
        "-b",
        "base",
        "--ready",
        "ready",
        "--ready-timeout",
        "5",
        "--server",
        &script,
    ];
    each(
        [
            &[&words[..], &["--", "true"]].concat()[..],
            &["compare", "--rounds", "1", "-b", "base", "--", &script],
            &["run", "--backing", "thp", "--report", "/nonexistent/\u{9b}1m", "--", "true"],
            &["inspect", NAME],
            &["apply", "--plan", &format!("/nonexistent/{NAME}")],
        ]
        .iter()
        .map(|arguments| plain(arguments)),
    )
}

/// What a command prints on a terminal.
fn on_terminal(place: &Place, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let mut command = Command::new(place.helper("terminal")?);
    Ok(ends_within(AT_ONCE, command.arg(program()).args(arguments))?.stdout)
}

fn json() -> TestResult {
    let place = Place::new()?;
    let living = place.hostile("named", &[NAME])?;
    let (pid, recording, log) = (living.pid(), place.text("recording"), place.text("gc.log"));
    ends_within(AT_ONCE, &mut hugewise(&["record", "--seconds", "1", "-o", &recording, &pid]))?;
    let line = "[1.0s][info][gc] GC(0) Pause Young (Normal) (\u{9b}1m\u{202e}cause) 20M->10M(64M) 3.000ms\n";
    fs::write(&log, format!("[0.1s][info][gc] Using Serial\n{line}"))?;
    each(
        [
            &["inspect", "--json", &pid][..],
            &["report", "--json", &recording],
            &["gclog", "--json", &log],
            &[
                "explain",
                "--json",
                "--text",
                &format!("{NAME} OpenJDK warning: Failed to reserve large pages"),
            ],
            &[
                "plan",
                "--json",
                "--backing",
                "thp",
                "--",
                &format!("/nonexistent/{NAME}/java"),
                "-Xmx64m",
                "Main",
            ],
        ]
        .iter()
        .map(|arguments| of_hugewise(arguments, &on_terminal(&place, arguments)?)),
    )
}
