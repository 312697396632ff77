//! SIGKILL of `hugewise compare --server` at random moments: the server ends, and its data folder is cleaned up.
//!
//! `HUGEWISE_KILLS` sets how often, `HUGEWISE_SEED` the moments.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    TestResult, Trial,
    compiling::compile,
    killed::number,
    needs::Need::{Compiler, Pool, Root},
    start::{Running, hugewise, left_running, run, wait_until},
    trial,
};

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Pool, Compiler];
    vec![
        trial("server: SIGKILL at any moment leaves nothing of it", &needs, || any_moment(&[""])),
        trial("servers: SIGKILL at any moment leaves nothing of two", &needs, || {
            any_moment(&["db=", "app="])
        }),
    ]
}

/// A server on PORT, with a child in a session of its own, which listens as well and ignores SIGTERM.
const SERVER: &str = "
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **arguments) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    FILE *port = fopen(arguments[2], \"w\");
    fputs(arguments[1], port);
    fclose(port);
    if (fork() == 0) {
        setsid();
        signal(SIGTERM, SIG_IGN);
    }
    memset(malloc(32 << 20), 1, 32 << 20);
    bind(listening, (struct sockaddr *)&address, sizeof address);
    listen(listening, 1);
    for (;;) pause();
}
";
/// Longest time from the start of the command to a kill.
const MAX_TIME: Duration = Duration::from_millis(1500);
/// Kills of a short run.
const KILLS: u64 = 6;

/// A server, which writes its port to a file in its data folder.
struct Killed {
    /// `db=`, or nothing for the only server.
    prefix: &'static str,
    data: PathBuf,
}

impl Killed {
    fn port(&self) -> PathBuf {
        self.data.join("port")
    }

    fn options(&self, program: &str) -> [String; 6] {
        let (prefix, data) = (self.prefix, self.data.display());
        let option = |name: &str| format!("--{name}");
        [
            option("server"),
            format!("{prefix}{program} {{port}} {}", self.port().display()),
            option("prepare"),
            format!("{prefix}mkdir {data}"),
            option("cleanup"),
            format!("{prefix}rm -r {data}"),
        ]
    }
}

/// Of two servers, the second starts when the first is ready; both must be gone.
fn any_moment(prefixes: &[&'static str]) -> TestResult {
    let folder = tempfile::tempdir()?;
    let program = compile(folder.path(), "server", SERVER)?;
    let server = |prefix: &&'static str| Killed { prefix, data: folder.path().join(format!("{prefix}data")) };
    let servers: Vec<Killed> = prefixes.iter().map(server).collect();
    let last = servers.last().ok_or("no server")?;
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| u64::from(now.subsec_micros()));
    let seed = number("HUGEWISE_SEED")?.unwrap_or_else(now);
    let kills = number("HUGEWISE_KILLS")?.unwrap_or(KILLS);
    println!("{kills} kills, HUGEWISE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut running_at_kill = 0;
    for kill in 0..kills {
        let mut command = hugewise(&["compare", "--rounds", "3", "-b", "base,hugetlb", "--ready", "{port}"]);
        command.args(servers.iter().flat_map(|server| server.options(&program)));
        command.args(["--stop-timeout", "0.2", "--", "sleep", "1"]);
        let mut running = Running::start(&mut command)?;
        if kill % 2 == 0 {
            wait_until("a server has started", || Ok(last.port().exists()))?;
        }
        // Once at its start, before anything has looked at its processes.
        let most = if kill % 2 == 0 { MAX_TIME / 2 } else { MAX_TIME };
        thread::sleep(if kill == 0 { Duration::ZERO } else { most.mul_f64(random.f64()) });
        let used: Vec<Option<String>> =
            servers.iter().map(|server| fs::read_to_string(server.port()).ok()).collect();
        running.child.kill()?;
        running.wait()?;
        running_at_kill += u64::from(used.iter().all(Option::is_some));
        let left = left_running();
        run(&["restore"])?.ended_with(0)?;
        for (server, used) in servers.iter().zip(&used) {
            nothing_is_left(&left, &server.data, used.as_deref())
                .map_err(|error| format!("kill {kill} of {kills}, HUGEWISE_SEED={seed}: {error}"))?;
        }
    }
    println!("the servers ran at {running_at_kill} of {kills} kills");
    if running_at_kill == 0 { Err("no server ran at a kill".into()) } else { Ok(()) }
}

fn nothing_is_left(left: &[String], data: &Path, port: Option<&str>) -> TestResult {
    if !left.is_empty() || data.exists() {
        return Err(format!("left: {left:?}, data folder: {}", data.exists()).into());
    }
    if let Some(port) = port.and_then(|port| port.parse::<u16>().ok()) {
        TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .map_err(|error: io::Error| format!("port {port}: {error}"))?;
    }
    Ok(())
}
