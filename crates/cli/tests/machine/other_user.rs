//! Programs that root starts as another user have nothing of root's.

use std::{
    error::Error,
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::Command,
};

use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    needs::Need::Root,
    skip,
    start::{hugewise, run_command},
    trial,
};

/// The user and group `nobody`.
const USER: u32 = 65534;

pub fn trials() -> Vec<Trial> {
    let name = "other user: a server, and those that are rehearsed, have no terminal, secret or file of root";
    vec![trial(name, &[Root], nothing_of_root)]
}

/// Writes what it has of its starter to the file `seen` beside it.
const WITNESS: &str = r#"#!/bin/sh
[ "$(id -u)" = 65534 ] || exit 0
{
    echo "$0"
    (: < /dev/tty) 2>/dev/null && echo a terminal
    env | grep SECRET
    ls -l /proc/$$/fd | grep secret-file
    grep -q 'NoNewPrivs:.1' /proc/$$/status || echo privileges
} >> "${0%/*}/seen"
[ "${0##*/}" = server ] && echo ready && exec sleep 1000
exit 1
"#;

/// A folder that the user may enter, with a file that it may write, and a program under each of these names.
fn folder(programs: &[&str], text: &str) -> Result<TempDir, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
    for name in programs {
        fs::write(dir.path().join(name), text)?;
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o755))?;
    }
    let (seen, data) = (dir.path().join("seen"), dir.path().join("data"));
    fs::write(&seen, "")?;
    fs::create_dir(&data)?;
    for path in [seen, data] {
        chown(path, Some(USER), Some(USER))?;
    }
    fs::write(dir.path().join("secret-file"), "")?;
    Ok(dir)
}

/// Runs the built program on a terminal of its own, with a variable and a descriptor that are not for others.
fn on_terminal(dir: &Path, arguments: &str) -> TestResult {
    let make = || {
        let hugewise = hugewise(&[]).get_program().to_string_lossy().into_owned();
        let mut command = Command::new("script");
        let file = dir.join("secret-file").display().to_string();
        command.args(["-qec", &format!("exec {hugewise} {arguments} 9< {file}"), "/dev/null"]);
        command.env("SECRET_OF_ROOT", "1");
        command
    };
    run_command(&make).map(drop)
}

fn nothing_of_root() -> TestResult {
    if Command::new("script").arg("--version").output().is_err() {
        return skip("script(1) is not installed");
    }
    let programs = ["server", "mariadbd", "postgres"];
    let dir = folder(&programs, WITNESS)?;
    let at = dir.path().display().to_string();
    for arguments in [
        format!("compare --server {at}/server --user nobody --ready ready --rounds 1 -b base -- true"),
        format!("plan -- {at}/mariadbd --user=nobody --large-pages"),
        format!("plan -- {at}/postgres -D {at}/data"),
    ] {
        on_terminal(dir.path(), &arguments)?;
    }
    let seen = fs::read_to_string(dir.path().join("seen"))?;
    for name in programs {
        assert!(seen.contains(&format!("{at}/{name}\n")), "{name} was not started: {seen}");
    }
    let starts = |line: &&str| line.starts_with(&at);
    assert_eq!(seen.lines().filter(|line| !starts(line)).collect::<Vec<_>>(), Vec::<&str>::new());
    Ok(())
}
