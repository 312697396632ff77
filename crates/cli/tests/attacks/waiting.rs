//! Nothing that another process delays keeps a command from its end, from an interrupt, or from restoring.

use std::{
    error::Error,
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::testing::trials::is_full;
use tempfile::TempDir;

use crate::{
    TestResult, Trial, attack,
    bounded::{AT_ONCE, ends_by, ends_within, within},
    compiling::compiled,
    hostile::Place,
    needs::{
        Need::{Java, Thp},
        jdks,
    },
    start::{Running, hugewise, wait_until},
};

pub const DELAYS: &str = "/proc/sys/kernel/task_delayacct";
pub const SLEEP: &str =
    "public class Sleep { public static void main(String[] a) throws Exception { Thread.sleep(3600000); } }";

pub fn trials() -> Vec<Trial> {
    vec![
        attack("waiting: record and restore with a full attach socket", &[], full_socket),
        attack("waiting: a JVM that is stopped", &[Java], stopped_jvm).representing(false),
        attack("waiting: record of a JVM without attach mechanism", &[Java], unattachable)
            .representing(false),
        attack("waiting: record of threads that start without pause", &[], threads).representing(false),
        attack("waiting: metrics that come byte by byte", &[Thp], slow_metrics).representing(false),
        attack("waiting: a rehearsed java that leaves a daemon", &[Java], daemon).representing(false),
    ]
}

/// Starts a recording of `pid`, and waits until it has changed its setting.
pub fn recording(place: &Place, pid: &str) -> Result<Running, Box<dyn Error>> {
    let before = fs::read_to_string(DELAYS)?;
    let file = place.text("recording");
    let _ = fs::remove_file(&file);
    let running = Running::start(&mut hugewise(&["record", "--seconds", "60", "-o", &file, pid]))?;
    let begin = Instant::now();
    while fs::read_to_string(DELAYS)? == before && begin.elapsed() < AT_ONCE {
        thread::sleep(Duration::from_millis(10));
    }
    // Until it asks the JVM.
    thread::sleep(Duration::from_millis(1000));
    Ok(running)
}

/// Records `pid` until the end of the time, an interrupt, and SIGKILL with `restore` after it.
pub fn recorded_in_time(place: &Place, pid: &str) -> TestResult {
    let (before, file) = (fs::read_to_string(DELAYS)?, place.text(&format!("timed-{pid}")));
    within(AT_ONCE, &["record", "--seconds", "1", "-o", &file, pid])?.ended_with(0)?;
    let signals: &[&str] = if is_full() { &["INT", "TERM"] } else { &["INT"] };
    for signal in signals {
        ends_by(signal, recording(place, pid)?, Duration::ZERO)?;
        assert_eq!(fs::read_to_string(DELAYS)?, before);
    }
    let mut killed = recording(place, pid)?;
    killed.child.kill()?;
    killed.wait()?;
    within(AT_ONCE, &["restore"])?;
    assert_eq!(fs::read_to_string(DELAYS)?, before);
    Ok(())
}

fn full_socket() -> TestResult {
    let place = Place::new()?;
    let jvm = place.jvm("full")?;
    recorded_in_time(&place, &jvm.pid())
}

/// A JVM that sleeps. Killed when dropped.
pub struct Jvm {
    pub child: Child,
    _classes: TempDir,
}

impl Jvm {
    pub fn start(options: &[&str]) -> Result<Jvm, Box<dyn Error>> {
        let classes = compiled("Sleep", SLEEP)?;
        let jdk = jdks().into_iter().next().ok_or("no JDK")?;
        let mut command = Command::new(&jdk.java);
        command
            .args(["-Xmx64m", "-XX:+UseSerialGC"])
            .args(options)
            .arg("-cp")
            .arg(classes.path())
            .arg("Sleep");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let jvm = Jvm { child, _classes: classes };
        // Its performance counters exist when it has started.
        let started = || {
            let maps = fs::read_to_string(format!("/proc/{}/maps", jvm.child.id())).unwrap_or_default();
            Ok(maps.contains("libjvm.so") && maps.contains("hsperfdata"))
        };
        wait_until("a JVM runs", started)?;
        thread::sleep(Duration::from_millis(500));
        Ok(jvm)
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stopped_jvm() -> TestResult {
    let jvm = Jvm::start(&[])?;
    within(AT_ONCE, &["inspect", "--attach", &jvm.pid()])?.ended_with(0)?;
    Command::new("kill").args(["-s", "STOP", &jvm.pid()]).status()?;
    // Six would fill its backlog.
    for _ in 0..7 {
        within(AT_ONCE, &["inspect", "--attach", &jvm.pid()])?;
    }
    recorded_in_time(&Place::new()?, &jvm.pid())
}

fn unattachable() -> TestResult {
    let place = Place::new()?;
    let hostile = place.jvm("closed")?;
    let jvms = [Jvm::start(&["-XX:+DisableAttachMechanism"])?, Jvm::start(&["-Xrs"])?];
    for pid in [jvms[0].pid(), jvms[1].pid(), hostile.pid()] {
        let (file, next) = (place.text(&format!("{pid}.rec")), place.text(&format!("{pid}-next.rec")));
        let recorded = within(AT_ONCE * 2, &["record", "--seconds", "1", "-o", &file, &pid])?;
        let code = recorded.status.code();
        if code != Some(0) {
            return Err(format!("the recording of {pid} ended with {code:?}: {}", recorded.stderr).into());
        }
        within(AT_ONCE, &["record", "-o", &next, "--", "true"])?.ended_with(0)?;
        within(AT_ONCE, &["restore"])?.ended_with(0)?;
    }
    Ok(())
}

/// A value of a file in /proc/sys during a test.
pub struct Sysctl {
    file: &'static str,
    before: String,
}

impl Sysctl {
    pub fn set(file: &'static str, value: &str) -> Result<Sysctl, Box<dyn Error>> {
        let before = fs::read_to_string(file)?;
        fs::write(file, value)?;
        Ok(Sysctl { file, before })
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        let _ = fs::write(self.file, &self.before);
    }
}

fn threads() -> TestResult {
    // With a small limit, the numbers are soon used up, and the threads are known.
    let _many = Sysctl::set("/proc/sys/kernel/pid_max", "4194304")?;
    let place = Place::new()?;
    let storm = place.hostile("threads", &["2"])?;
    recorded_in_time(&place, &storm.pid())
}

/// A server for metrics, which answers `good` times; after that, `bad` answers.
pub fn metrics(good: usize, bad: fn(TcpStream)) -> Result<String, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", listener.local_addr()?);
    thread::spawn(move || {
        static ANSWERED: AtomicUsize = AtomicUsize::new(0);
        ANSWERED.store(0, Ordering::Relaxed);
        for client in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut client = client;
                let _ = client.read(&mut [0; 4096]);
                let number = ANSWERED.fetch_add(1, Ordering::Relaxed);
                if number < good {
                    let _ = write!(client, "HTTP/1.0 200 OK\r\n\r\nx_total {number}\n");
                } else {
                    bad(client);
                }
            });
        }
    });
    Ok(url)
}

/// Compares a process with a source of metrics, until the end of its time, and until an interrupt.
pub fn compared_in_time(source: &[&str]) -> TestResult {
    let place = Place::new()?;
    let hostile = place.hostile("memory", &["32"])?;
    let pid = hostile.pid();
    let live = ["compare", "--live", &pid, "--turn", "1", "--metric", "x/s=prom:x_total"];
    let command = |max_time: &str| hugewise(&[&live[..], &["--max-time", max_time], source].concat());
    ends_within(AT_ONCE * 2, &mut command("10"))?;
    for signal in ["INT", "TERM"] {
        ends_by(signal, Running::start(&mut command("60"))?, Duration::from_secs(5))?;
    }
    Ok(())
}

fn slow_metrics() -> TestResult {
    let url = metrics(3, |mut client| {
        let _ = client.write_all(b"HTTP/1.0 200 OK\r\n\r\n");
        while client.write_all(b"#").is_ok() {
            thread::sleep(Duration::from_secs(1));
        }
    })?;
    compared_in_time(&["--metric-url", &url])
}

/// Ends the processes whose ids are in a file.
struct Daemons(String);

impl Drop for Daemons {
    fn drop(&mut self) {
        for pid in fs::read_to_string(&self.0).unwrap_or_default().lines() {
            let _ = Command::new("kill").args(["-s", "KILL", pid]).status();
        }
    }
}

fn daemon() -> TestResult {
    let place = Place::new()?;
    let pids = Daemons(place.text("pids"));
    let java = jdks().first().ok_or("no JDK")?.java.display().to_string();
    let daemon = format!("echo $$ >> {}; trap '' TERM HUP INT; exec sleep 300", pids.0);
    let script = format!("#!/bin/sh\nsetsid sh -c \"{daemon}\" > /dev/null 2>&1 &\nexec {java} \"$@\"\n");
    let script = place.script("java", &script.replace("$$", "\\$\\$"))?;
    // A start may take 30 s.
    let limit = Duration::from_secs(30) + AT_ONCE;
    let planned = within(limit, &["plan", "--backing", "thp", "--", &script, "-Xmx64m", "-version"])?;
    assert!(planned.status.code().is_some_and(|code| code <= 2), "{planned:#?}");
    Ok(())
}
