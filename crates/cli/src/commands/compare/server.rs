//! `--server`: each run starts servers, and the command is their driver.

use std::{env, time::Duration};

use anyhow::{Context, bail, ensure};
use clap::Args;
use hugewise_databases::postgres::line::{self, PostgresLine};
use hugewise_jvm::launch::{self, option_words};
use hugewise_linux::{root::Root, sys::process, systemd::Unit, users::Account};
use hugewise_measure::{
    serving::{PORT, Ready, Service, port_of},
    workload::{OwnFigures, Workload, metric::Metric},
};

use super::{named, seconds};

#[derive(Args, Debug)]
pub struct ServerArguments {
    /// Start this server on each backing in each run; COMMAND is the driver, which runs when the server is ready.
    /// Words are separated by blanks, which quotes keep; no shell is involved. {port} is a free TCP port, here, in
    /// --ready and in COMMAND. Several servers have names, of lower-case letters, digits and '-': they start in the
    /// order given, each when the one before it is ready, on all combinations of their backings; {port:NAME} is the
    /// port of one of them. NAME= before a value of the options for servers, and of --backing, is the server that it
    /// is for; without it, the value is for all that have none of their own. UNIT.service in place of CMD is a systemd
    /// service that runs: it is started on each backing in each run, by a drop-in below /run, and as it was at the end
    #[arg(long, value_name = "[NAME=]CMD", requires_all = ["ready", "command"], conflicts_with_all = ["turns", "jmh"])]
    server: Vec<String>,
    /// When the server is ready: a TCP port ({port}: the chosen one) accepts connections, a file (absolute path)
    /// exists, or a line of its output matches REGEX
    #[arg(long, value_name = "[NAME=]PORT|FILE|REGEX", requires = "server")]
    ready: Vec<String>,
    /// Start the server, and run --prepare and --cleanup, as this user, without root's variables, files and terminal;
    /// needs root
    #[arg(long, value_name = "[NAME=]USER", requires = "server")]
    user: Vec<String>,
    /// Run this command before each start of the server, for example to restore its data; {port} as in --server.
    /// Those of several servers run before the first of them starts
    #[arg(long, value_name = "[NAME=]CMD", requires = "server")]
    prepare: Vec<String>,
    /// Run this command after each end of the server, also after an error, Ctrl-C, or the end of hugewise by SIGKILL
    #[arg(long, value_name = "[NAME=]CMD", requires = "server")]
    cleanup: Vec<String>,
    /// Longest time until the server is ready [default: 60]
    #[arg(long, value_name = "[NAME=]SECONDS", requires = "server")]
    ready_timeout: Vec<String>,
    /// Longest time for the server to end after SIGTERM, before SIGKILL [default: 30]
    #[arg(long, value_name = "[NAME=]SECONDS", requires = "server")]
    stop_timeout: Vec<String>,
    /// Number of operations in the driver's output, as in --metric: the CPU time of the servers for each operation
    /// is then a figure, and decides the verdict unless --metric is given
    #[arg(long, value_name = "REGEX", requires = "server")]
    operations: Option<String>,
}

const READY_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A server to compare.
#[derive(Debug)]
pub struct Server {
    /// Its name among several; empty for the only one.
    pub name: String,
    pub command: Vec<String>,
    pub service: Service,
}

impl Server {
    /// The command line that starts it.
    pub fn shown_command(&self) -> Vec<String> {
        let start = |unit: &Unit| ["systemctl", "start", unit.name()].map(str::to_owned).to_vec();
        self.service.unit.as_ref().map_or_else(|| self.command.clone(), start)
    }
}

impl ServerArguments {
    /// The names of the servers that have one, in the order given.
    pub fn names(&self) -> Vec<&str> {
        self.server.iter().filter_map(|text| named::split(text).0).collect()
    }

    /// The names of several servers; none for a single one.
    pub fn names_of_several(&self) -> Vec<&str> {
        if self.server.len() > 1 { self.names() } else { Vec::new() }
    }

    /// The servers, in the order of their start, and the driver; none without `--server`.
    pub fn servers(&self, driver: &[String]) -> anyhow::Result<(Vec<Server>, Vec<String>)> {
        let names = self.names();
        for (index, text) in self.server.iter().enumerate() {
            let name = named::split(text).0;
            ensure!(
                name.is_some() || self.server.len() == 1,
                "--server '{text}': several servers need names, of lower-case letters, digits and '-': --server \
                 db='{text}'"
            );
            ensure!(
                name.is_none() || !names[..index].contains(&names[index]),
                "--server: two servers are called {}",
                names[index]
            );
        }
        let servers =
            self.server.iter().map(|text| self.server(text, &names)).collect::<anyhow::Result<_>>()?;
        let driver = match names[..] {
            [name] => own_port(driver, name),
            _ => driver.to_vec(),
        };
        if let [first, second, ..] = names[..] {
            ensure!(
                !driver.iter().any(|word| word.contains(PORT)),
                "COMMAND: {PORT} is the port of which server? Write {}, {} …",
                port_of(first),
                port_of(second)
            );
        }
        check_ports("COMMAND", &driver, &names)?;
        Ok((servers, driver))
    }

    fn server(&self, text: &str, names: &[&str]) -> anyhow::Result<Server> {
        let (name, command) = named::split(text);
        let name = name.unwrap_or_default();
        let value = |option: &'static str, values| named::value(option, values, name, names);
        let command_of = |option: &str, text: &str| {
            let words = own_port(&words(text, option)?, name);
            check_ports(option, &words, names)?;
            Ok::<_, anyhow::Error>(words)
        };
        let optional = |option: &'static str, values| {
            let text = value(option, values)?;
            Ok::<_, anyhow::Error>(text.map(|text| command_of(option, text)).transpose()?.unwrap_or_default())
        };
        let time = |option: &'static str, values, default| match value(option, values)? {
            Some(text) => seconds(text).map_err(|why| anyhow::anyhow!("{option} '{text}': {why}")),
            None => Ok(default),
        };
        let Some(ready) = value("--ready", &self.ready)? else {
            bail!("--ready: when is the server {name} ready? Give --ready {name}='PORT|FILE|REGEX'");
        };
        let ready = own_port(&[ready.to_owned()], name).concat();
        ensure!(
            !names.iter().any(|other| ready == port_of(other)),
            "--ready {name}={ready}: this is the port of another server"
        );
        let command = command_of("--server", command)?;
        let ready = ready.parse::<Ready>().map_err(|why| anyhow::anyhow!("--ready '{ready}': {why}"))?;
        let user = value("--user", &self.user)?;
        let unit = match &command[..] {
            [word] => Unit::parse(word),
            _ => None,
        };
        if let Some(unit) = &unit {
            check_unit(
                unit,
                &ready,
                user.is_some() || value("--stop-timeout", &self.stop_timeout)?.is_some(),
            )?;
        }
        Ok(Server {
            name: if names.len() > 1 { name.to_owned() } else { String::new() },
            command,
            service: Service {
                unit,
                ready,
                ready_timeout: time("--ready-timeout", &self.ready_timeout, READY_TIMEOUT)?,
                stop_timeout: time("--stop-timeout", &self.stop_timeout, STOP_TIMEOUT)?,
                user: user.map(account).transpose()?,
                prepare: optional("--prepare", &self.prepare)?,
                cleanup: optional("--cleanup", &self.cleanup)?,
                program: env::current_exe().context("cannot determine the path of this executable")?,
            },
        })
    }

    pub fn operations(&self) -> anyhow::Result<Option<Metric>> {
        let metric = |expression: &String| format!("operations={expression}").parse();
        self.operations.as_ref().map(metric).transpose().map_err(anyhow::Error::msg)
    }
}

/// The words of a server with the name of its own port shortened to [`PORT`].
fn own_port(words: &[String], name: &str) -> Vec<String> {
    words.iter().map(|word| word.replace(&port_of(name), PORT)).collect()
}

/// Fails if the ports of unknown servers are named.
fn check_ports(option: &str, words: &[String], names: &[&str]) -> anyhow::Result<()> {
    let begin = port_of("");
    let begin = begin.trim_end_matches('}');
    for named in words.iter().flat_map(|word| word.split(begin).skip(1)) {
        if let Some((name, _)) = named.split_once('}') {
            ensure!(
                names.contains(&name),
                "{option}: {} is the port of no server; {}",
                port_of(name),
                match names {
                    [] => "write {port}".to_owned(),
                    _ => format!("the servers are {}", names.join(", ")),
                }
            );
        }
    }
    Ok(())
}

/// The words of the command that is given with `option`.
pub fn words(text: &str, option: &str) -> anyhow::Result<Vec<String>> {
    option_words(text, option).with_context(|| format!("{option}: a quote is not closed"))
}

/// Fails if an option does not suit a service of systemd.
fn check_unit(unit: &Unit, ready: &Ready, has_own: bool) -> anyhow::Result<()> {
    ensure!(process::is_root(), "--server {unit}: only root can start services; try sudo");
    ensure!(
        !has_own,
        "--server {unit}: the unit sets its user and its timeout; leave out --user and --stop-timeout"
    );
    ensure!(
        matches!(ready, Ready::Port(_) | Ready::File(_)),
        "--server {unit}: give the port of the service, or a file, to --ready: its port is not chosen here, and its \
         output goes to the journal"
    );
    Ok(())
}

fn account(name: &str) -> anyhow::Result<Account> {
    ensure!(process::is_root(), "--user {name}: only root can start programs as another user; try sudo");
    Account::named(&Root::live(), name).with_context(|| format!("--user {name}: no such user in /etc/passwd"))
}

/// A PostgreSQL server; `None` if `command` starts another program.
pub fn postgres(command: &[String], own: &OwnFigures) -> anyhow::Result<Option<Workload>> {
    let variable = |name: &str| env::var(name).ok();
    let Some(found) = launch::find_program(command, &line::NAMES, &["PGDATA"], &variable)? else {
        return Ok(None);
    };
    ensure!(
        command.ends_with(&found.words),
        "--server: the options of PostgreSQL cannot be added in a shell's script; give the command line of postgres itself"
    );
    let pgdata = found.variables.into_iter().next().flatten();
    let line = PostgresLine::parse(&found.words, pgdata)?;
    Ok(Some(Workload::postgres(command.to_vec(), line, own.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The servers of these `--server`, `--ready` and words of the driver.
    fn servers(server: &[&str], ready: &[&str], driver: &str) -> anyhow::Result<(Vec<Server>, Vec<String>)> {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let arguments = ServerArguments {
            server: texts(server),
            ready: texts(ready),
            user: Vec::new(),
            prepare: texts(&["mkdir /tmp/{port}"]),
            cleanup: Vec::new(),
            ready_timeout: if server.len() > 1 { texts(&["db=5"]) } else { Vec::new() },
            stop_timeout: Vec::new(),
            operations: None,
        };
        arguments.servers(&words(driver, "COMMAND")?)
    }

    #[test]
    fn several_servers_have_names_and_options_of_their_own() -> anyhow::Result<()> {
        let given = ["db=postgres -p {port}", "app=java App {port:app} {port:db}"];
        let (servers, driver) = servers(&given, &["{port}"], "load {port:app}")?;
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!((names, driver), (vec!["db", "app"], vec!["load".to_owned(), "{port:app}".to_owned()]));
        assert_eq!(servers[1].command, ["java", "App", "{port}", "{port:db}"]);
        let timeouts: Vec<u64> =
            servers.iter().map(|server| server.service.ready_timeout.as_secs()).collect();
        assert_eq!(timeouts, [5, 60]);
        assert!(servers.iter().all(|server| matches!(server.service.ready, Ready::ChosenPort)));
        assert!(servers.iter().all(|server| server.service.prepare.len() == 2));
        Ok(())
    }

    #[test]
    fn one_server_needs_no_name_and_may_have_one() -> anyhow::Result<()> {
        for (given, ready) in [("java App {port}", "{port}"), ("app=java App {port:app}", "app={port:app}")] {
            let (servers, driver) =
                servers(&[given], &[ready], given.rsplit(' ').next().unwrap_or_default())?;
            assert_eq!((servers[0].name.as_str(), &driver[..]), ("", &["{port}".to_owned()][..]));
            assert_eq!(servers[0].command, ["java", "App", "{port}"]);
            assert!(matches!(servers[0].service.ready, Ready::ChosenPort));
        }
        let (servers, _) = servers(&["A=b java App"], &["state=up"], "x")?;
        assert_eq!(servers[0].command[0], "A=b");
        Ok(())
    }

    #[test]
    fn what_is_ambiguous_or_unknown_is_refused_with_the_next_step() {
        let both = ["db=a", "app=b"];
        let cases: [(&[&str], &[&str], &str, &str); 7] = [
            (&["a", "b"], &["x"], "c", "several servers need names"),
            (&["db=a", "db=b"], &["x"], "c", "two servers are called db"),
            (&both, &["db=x"], "c", "--ready app="),
            (&both, &["x", "bd=y"], "c", "no server is called bd"),
            (&both, &["x"], "c {port}", "Write {port:db}, {port:app}"),
            (&both, &["x"], "c {port:bd}", "{port:bd} is the port of no server; the servers are db, app"),
            (&both, &["x", "app={port:db}"], "c", "the port of another server"),
        ];
        for (server, ready, driver, expected) in cases {
            let said =
                servers(server, ready, driver).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(said.contains(expected), "{server:?} {ready:?} {driver}: {said}");
        }
    }
}
