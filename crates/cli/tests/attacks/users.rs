//! What a server gets that runs as another user than hugewise.

use std::{
    error::Error,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{root::Root, users::Account};

use crate::{
    TestResult, Trial, attack,
    bounded::{AT_ONCE, COMPARED, ends_within, within},
    hostile::{Place, USER},
    services::running,
    skip,
    start::{Running, hugewise, program, wait_until},
    waiting::Sysctl,
};

/// A value of the environment that is root's own.
const SECRET: &str = "SECRET-OF-ROOT";
const TIOCSTI: &str = "/proc/sys/dev/tty/legacy_tiocsti";

pub fn trials() -> Vec<Trial> {
    vec![
        attack("users: a server cannot type into root's terminal", &[], terminal),
        attack("users: environment and descriptors of a server", &[], inherited),
        attack("users: a server gets no privileges, and ends with hugewise", &[], privileges),
        attack("users: a server ends with hugewise and its guard", &[], killed),
    ]
}

/// The name of the ordinary user.
fn user() -> Result<String, Box<dyn Error>> {
    match Account::of_uid(&Root::live(), USER) {
        Some(account) => Ok(account.name),
        None => skip(format!("no user with uid {USER}")),
    }
}

/// Words of a comparison with this server as the ordinary user.
fn served(server: &str, options: &[&str]) -> Result<Vec<String>, Box<dyn Error>> {
    let user = user()?;
    let words =
        ["compare", "--rounds", "1", "-b", "base", "--server", server, "--user", &user, "--ready", "ready"];
    let words =
        [&words[..], &["--ready-timeout", "15", "--stop-timeout", "1"], options, &["--", "true"]].concat();
    Ok(words.into_iter().map(str::to_owned).collect())
}

fn terminal() -> TestResult {
    let _allowed = Path::new(TIOCSTI).exists().then(|| Sysctl::set(TIOCSTI, "1")).transpose()?;
    let place = Place::new()?;
    let (report, typed) = (place.of_user()?.join("report"), place.text("typed"));
    let server =
        format!("{} 'typed by the server\n' {}", place.helper("typing")?.display(), report.display());
    let words = [vec![program().display().to_string()], served(&server, &[])?].concat();
    let quoted: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
    // A line of the terminal that hugewise left unread would be the next command of a shell.
    let script = format!("#!/bin/sh\n{}\ntimeout --foreground 2 cat > {typed}\n", quoted.join(" "));
    let shell = place.script("shell", &script)?;
    ends_within(COMPARED, Command::new(place.helper("terminal")?).arg(shell))?;
    let (report, typed) = (fs::read_to_string(report)?, fs::read_to_string(typed)?);
    let reaches =
        report.lines().any(|line| !line.ends_with("typed 0 characters") && !line.starts_with("no "));
    if reaches || !report.contains("no controlling terminal") || !typed.is_empty() {
        return Err(
            format!("the server reached root's terminal: {report}; a shell would read {typed:?}").into()
        );
    }
    Ok(())
}

/// A script that writes what it gets to files in `folder`; the first argument names them.
fn reporting(place: &Place, folder: &Path, and_then: &str) -> Result<String, Box<dyn Error>> {
    let folder = folder.display();
    let text = format!(
        "#!/bin/sh\nenv > {folder}/$1.env\nls -l /proc/self/fd > {folder}/$1.fd 2>&1\n\
         cat /proc/self/status > {folder}/$1.status\n{and_then}\n"
    );
    place.script("reporting", &text)
}

/// Environment, descriptors and status of one of the processes, as text.
fn report(folder: &Path, of: &str) -> Result<[String; 3], Box<dyn Error>> {
    let read = |kind: &str| {
        let file = folder.join(format!("{of}.{kind}"));
        fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
    };
    Ok([read("env")?, read("fd")?, read("status")?])
}

fn inherited() -> TestResult {
    let place = Place::new()?;
    let folder = place.of_user()?;
    let script = reporting(&place, &folder, "[ \"$1\" != server ] || { echo ready; exec sleep 100; }")?;
    let [server, prepare, cleanup] = ["server", "prepare", "cleanup"].map(|of| format!("{script} {of}"));
    let mut inner = hugewise(&[]);
    inner.args(served(&server, &["--prepare", &prepare, "--cleanup", &cleanup])?);
    // Root's file is open in hugewise, for reading, as inherited from a shell.
    let secret = place.path("secret");
    fs::write(&secret, SECRET)?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    let mut command = Command::new("sh");
    command.args(["-c", "exec 7< \"$0\" 8<&7; exec \"$@\""]).arg(&secret);
    command.arg(inner.get_program()).args(inner.get_args());
    for name in ["AWS_SECRET_ACCESS_KEY", "LD_PRELOAD_PATH", "SSH_AUTH_SOCK"] {
        command.env(name, SECRET);
    }
    ends_within(COMPARED, &mut command)?;
    for of in ["prepare", "server", "cleanup"] {
        let [environment, descriptors, _] = report(&folder, of)?;
        if environment.contains(SECRET) {
            return Err(format!("{of} has root's environment: {environment}").into());
        }
        let inherited: Vec<&str> = descriptors
            .lines()
            .filter(|line| line.contains("secret") || line.contains("hugewise") || line.contains("/dev/tty"))
            .collect();
        if !inherited.is_empty() {
            return Err(format!("{of} has descriptors of root: {inherited:?}").into());
        }
    }
    Ok(())
}

fn privileges() -> TestResult {
    let place = Place::new()?;
    let folder = place.of_user()?;
    // A child in a session of its own, without root's environment.
    let escape = format!(
        "setsid env -i sh -c 'echo $$ > {}/escaped; trap \"\" TERM HUP INT; exec sleep 300' > /dev/null 2>&1 &\n\
         sleep 0.5; echo ready; exec sleep 100",
        folder.display()
    );
    let script = reporting(&place, &folder, &escape)?;
    let mut command = hugewise(&[]);
    command.args(served(&format!("{script} server"), &[])?);
    ends_within(COMPARED, &mut command)?;
    let [_, _, status] = report(&folder, "server")?;
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim_start_matches(':').trim().to_owned()).unwrap_or_default()
    };
    let escaped = fs::read_to_string(folder.join("escaped"))?;
    let escaped = Path::new("/proc").join(escaped.trim());
    let remains = fs::read(escaped.join("cmdline")).is_ok_and(|line| line.starts_with(b"sleep"));
    if remains {
        let pid = escaped.file_name().unwrap_or_default();
        Command::new("kill").args(["-s", "KILL"]).arg(pid).status()?;
        return Err("a process of the server remains after the end of hugewise".into());
    }
    let ids = [USER; 4].map(|id| id.to_string()).join("\t");
    assert_eq!((value("Uid"), value("Gid")), (ids.clone(), ids));
    assert!(!value("Groups").split(' ').any(|group| group == "0"), "{status}");
    assert_eq!(value("NoNewPrivs"), "1", "a program of the server may become root");
    assert_eq!(value("CapEff"), "0000000000000000");
    Ok(())
}

fn killed() -> TestResult {
    let place = Place::new()?;
    let folder = place.of_user()?;
    let (pids, first) = (folder.join("pids"), folder.join("first"));
    // One child in the group, one that leaves it.
    let child = format!("sh -c 'echo $$ >> {}; exec sleep 300'", pids.display());
    let text =
        format!("#!/bin/sh\necho $$ > {}\n{child} &\nsetsid {child} &\nexec {child}\n", first.display());
    let server = place.script("server", &text)?;
    let mut command = hugewise(&[]);
    command.args(served(&server, &[])?);
    let compared = Running::start(&mut command)?;
    let started = || fs::read_to_string(&pids).unwrap_or_default();
    wait_until("the server runs", || Ok(started().lines().count() == 3))?;
    Command::new("kill").args(["-s", "KILL"]).args(running()).status()?;
    compared.wait()?;
    let alive = |pid: &&str| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with("sleep"))
    };
    // The first process ends by its death signal.
    let (all, first, begin) = (started(), fs::read_to_string(first)?, Instant::now());
    while alive(&first.trim()) && begin.elapsed() < AT_ONCE {
        thread::sleep(Duration::from_millis(20));
    }
    let first_ended = begin.elapsed() < AT_ONCE;
    within(AT_ONCE, &["restore"])?.ended_with(0)?;
    let left: Vec<&str> = all.lines().filter(alive).collect();
    if !left.is_empty() {
        Command::new("kill").args(["-s", "KILL"]).args(&left).status()?;
    }
    if first_ended && left.is_empty() {
        Ok(())
    } else {
        Err(format!("the server ended: {first_ended}; these remain after restore: {left:?}").into())
    }
}
