//! Servers, processes and file systems that are silent, slow or stopped while hugewise waits for them.

use std::{error::Error, fs, io::Write, net::TcpListener, path::PathBuf, thread, time::Duration};

use crate::{
    TestResult, Trial, attack,
    bounded::{AT_ONCE, COMPARED, ends_by, ends_within, within},
    hostile::{Hostile, Place},
    needs::Need::Thp,
    reading::{each, observing, orderly},
    start::{Running, hugewise, wait_until},
    waiting::{compared_in_time, metrics, recorded_in_time},
};

pub fn trials() -> Vec<Trial> {
    vec![
        attack("silence: JVMs that answer slowly, never, or without end", &[], answers).representing(false),
        attack("silence: servers of metrics that accept, refuse or never end", &[Thp], servers)
            .representing(false),
        attack("silence: a command for metrics that does not end", &[Thp], metric_command)
            .representing(false),
        attack("silence: a process that is stopped or frozen", &[Thp], stopped).representing(false),
        attack("silence: a file system that does not answer below /proc/PID/root", &[], file_system)
            .representing(false),
        attack("silence: a server that is stopped", &[], server).representing(false),
        attack("silence: processes that start threads without pause", &[Thp], threads).representing(false),
    ]
}

fn answers() -> TestResult {
    let place = Place::new()?;
    each(["silent", "slow", "endless"].iter().map(|how| {
        let jvm = place.jvm(how)?;
        let named = |error: Box<dyn Error>| format!("{how}: {error}").into();
        within(AT_ONCE * 2, &["inspect", "--attach", &jvm.pid()]).and_then(orderly).map_err(named)?;
        recorded_in_time(&place, &jvm.pid()).map_err(named)
    }))
}

fn servers() -> TestResult {
    let silent = metrics(3, |_client| thread::sleep(Duration::from_secs(600)))?;
    let endless = metrics(3, |mut client| {
        let page = [b'#'; 1 << 16];
        while client.write_all(&page).is_ok() {}
    })?;
    // Its backlog is full: a connection is neither made nor refused.
    let full = TcpListener::bind("127.0.0.1:0")?;
    let address = full.local_addr()?;
    let _kept: Vec<_> = (0..300)
        .map_while(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok())
        .collect();
    let full = format!("http://{address}/");
    each([silent, endless, full].iter().map(|url| {
        compared_in_time(&["--metric-url", url]).map_err(|error| format!("{url}: {error}").into())
    }))
}

fn metric_command() -> TestResult {
    let place = Place::new()?;
    let count = place.text("count");
    // A child in a session of its own keeps the output open, and ignores signals.
    let text = format!(
        "#!/bin/sh\necho x >> {count}; n=$(wc -l < {count}); echo \"x_total $n\"; [ $n -lt 4 ] && exit\n\
         trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM INT HUP; sleep 60' & sleep 60\n"
    );
    let command = place.script("metrics", &text)?;
    compared_in_time(&["--metric-command", &command])
}

/// Stops a process by a control group for freezing, or by signal where there is none. Thawed when dropped.
struct Frozen(PathBuf);

impl Frozen {
    fn new(pid: u32) -> Result<Frozen, Box<dyn Error>> {
        let name = format!("hugewise-test-{}-frozen", std::process::id());
        let v1 = PathBuf::from("/sys/fs/cgroup/freezer");
        let parent = if v1.exists() { v1 } else { PathBuf::from("/sys/fs/cgroup") };
        let group = Frozen(parent.join(name));
        fs::create_dir(&group.0)?;
        fs::write(group.0.join("cgroup.procs"), pid.to_string())?;
        group.set(true)?;
        Ok(group)
    }

    fn set(&self, frozen: bool) -> TestResult {
        let v1 = self.0.join("freezer.state");
        if v1.exists() {
            return Ok(fs::write(v1, if frozen { "FROZEN" } else { "THAWED" })?);
        }
        Ok(fs::write(self.0.join("cgroup.freeze"), if frozen { "1" } else { "0" })?)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = self.set(false);
        // The process itself is dropped later: its group is removed when it has left.
        let procs = self.0.parent().map(|parent| parent.join("cgroup.procs"));
        for pid in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = procs.as_ref().map(|procs| fs::write(procs, pid));
        }
        let _ = wait_until("a group is empty", || Ok(fs::remove_dir(&self.0).is_ok()));
    }
}

/// Runs all commands on a process that does not run.
fn observed(place: &Place, hostile: &Hostile) -> TestResult {
    let (pid, recording) = (hostile.pid(), place.text("recording"));
    let commands = observing(&pid, &recording);
    each(commands.iter().map(|arguments| within(AT_ONCE, arguments).and_then(orderly)))?;
    for command in ["collapse", "split"] {
        within(AT_ONCE, &[command, &pid]).and_then(orderly)?;
    }
    let live = ["compare", "--live", &pid, "--turn", "1", "--max-time"];
    within(AT_ONCE * 2, &[&live[..], &["6"]].concat())?;
    for signal in ["INT", "TERM"] {
        let running = Running::start(&mut hugewise(&[&live[..], &["60"]].concat()))?;
        ends_by(signal, running, Duration::from_secs(3))?;
    }
    let mut killed = Running::start(&mut hugewise(&[&live[..], &["60"]].concat()))?;
    thread::sleep(Duration::from_secs(3));
    killed.child.kill()?;
    killed.wait()?;
    within(AT_ONCE, &["restore"])?;
    Ok(())
}

fn stopped() -> TestResult {
    let place = Place::new()?;
    let hostile = place.hostile("memory", &["64"])?;
    hostile.stop()?;
    observed(&place, &hostile).map_err(|error| format!("stopped: {error}"))?;
    let hostile = place.hostile("memory", &["64"])?;
    let frozen = Frozen::new(hostile.pid)?;
    let outcome = observed(&place, &hostile).map_err(|error| format!("frozen: {error}").into());
    drop(frozen);
    outcome
}

fn file_system() -> TestResult {
    let place = Place::new()?;
    each(["/tmp", "/run", "/usr"].iter().map(|folder| {
        let hostile = place.overlay(folder, "")?;
        let (pid, recording) = (hostile.pid(), place.text("recording"));
        let attached = ["inspect", "--attach", &pid];
        let commands = observing(&pid, &recording);
        let all = commands.iter().map(|command| &command[..]).chain([&attached[..]]);
        each(all.map(|arguments| {
            within(AT_ONCE * 2, arguments)
                .and_then(orderly)
                .map_err(|error| format!("{folder}: {error}").into())
        }))?;
        // The lock of the settings is free.
        for arguments in [&["apply", "--khugepaged", "max_ptes_none=510"][..], &["restore"]] {
            within(AT_ONCE, arguments)?.ended_with(0)?;
        }
        Ok(())
    }))
}

fn server() -> TestResult {
    let place = Place::new()?;
    each(["", "echo ready;"].iter().map(|said| {
        let script = format!("#!/bin/sh\ntrap '' TERM INT HUP\n{said} kill -s STOP $$\nsleep 600\n");
        let server = place.script("server", &script)?;
        let words = ["compare", "--rounds", "1", "-b", "base", "--server", &server, "--ready", "ready"];
        let command = || {
            hugewise(
                &[&words[..], &["--ready-timeout", "3", "--stop-timeout", "2", "--", "sleep", "2"]].concat(),
            )
        };
        ends_within(COMPARED, &mut command())?;
        ends_by("INT", Running::start(&mut command())?, Duration::from_secs(1)).map(drop)
    }))
}

fn threads() -> TestResult {
    let place = Place::new()?;
    let storm = place.hostile("threads", &["2"])?;
    let (pid, recording) = (storm.pid(), place.text("recording"));
    let commands = observing(&pid, &recording);
    each(commands.iter().map(|arguments| within(AT_ONCE * 2, arguments).and_then(orderly)))?;
    for words in [&["collapse", &pid][..], &["split", &pid], &["inspect", "--attach", &pid]] {
        orderly(within(AT_ONCE * 2, words)?)?;
    }
    let live = ["compare", "--live", &pid, "--region", "all", "--turn", "1", "--max-time", "6"];
    within(AT_ONCE * 2, &live).map(drop)
}
