//! `--server`: each run starts a server, and the command is its driver.

use std::{env, time::Duration};

use anyhow::{Context, ensure};
use clap::Args;
use hugewise_databases::postgres::line::{self, PostgresLine};
use hugewise_jvm::launch::{self, option_words};
use hugewise_linux::{root::Root, sys::process, users::Account};
use hugewise_measure::{
    serving::{Ready, Service},
    workload::{OwnFigures, Workload, metric::Metric},
};

use super::seconds;

#[derive(Args, Debug)]
pub struct ServerArguments {
    /// Start this server on each backing in each run; COMMAND is the driver, which runs when the server is ready.
    /// Words are separated by blanks, which quotes keep; no shell is involved. {port} is a free TCP port, here, in
    /// --ready and in COMMAND
    #[arg(long, value_name = "CMD", requires_all = ["ready", "command"], conflicts_with_all = ["turns", "jmh"])]
    server: Option<String>,
    /// When the server is ready: a TCP port ({port}: the chosen one) accepts connections, a file (absolute path)
    /// exists, or a line of its output matches REGEX
    #[arg(long, value_name = "PORT|FILE|REGEX", requires = "server")]
    ready: Option<Ready>,
    /// Start the server, and run --prepare and --cleanup, as this user; needs root
    #[arg(long, value_name = "NAME", requires = "server")]
    user: Option<String>,
    /// Run this command before each start of the server, for example to restore its data; {port} as in --server
    #[arg(long, value_name = "CMD", requires = "server")]
    prepare: Option<String>,
    /// Run this command after each end of the server, also after an error, Ctrl-C, or the end of hugewise by SIGKILL
    #[arg(long, value_name = "CMD", requires = "server")]
    cleanup: Option<String>,
    /// Longest time until the server is ready
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60", requires = "server")]
    ready_timeout: Duration,
    /// Longest time for the server to end after SIGTERM, before SIGKILL
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "30", requires = "server")]
    stop_timeout: Duration,
    /// Number of operations in the driver's output, as in --metric: the CPU time of the server for each operation
    /// is then a figure, and decides the verdict unless --metric is given
    #[arg(long, value_name = "REGEX", requires = "server")]
    operations: Option<String>,
}

impl ServerArguments {
    /// The words of the server's command; `None` without a server.
    pub fn command(&self) -> anyhow::Result<Option<Vec<String>>> {
        self.server.as_ref().map(|text| words(text, "--server")).transpose()
    }

    /// What is run with the server; `None` without one.
    pub fn service(&self, driver: Vec<String>) -> anyhow::Result<Option<Service>> {
        let Some(ready) = self.ready.clone() else { return Ok(None) };
        let program = env::current_exe().context("cannot determine the path of this executable")?;
        let of =
            |command: &Option<String>, option| command.as_ref().map(|text| words(text, option)).transpose();
        Ok(Some(Service {
            ready,
            ready_timeout: self.ready_timeout,
            stop_timeout: self.stop_timeout,
            driver,
            program,
            user: self.user.as_deref().map(account).transpose()?,
            prepare: of(&self.prepare, "--prepare")?.unwrap_or_default(),
            cleanup: of(&self.cleanup, "--cleanup")?.unwrap_or_default(),
        }))
    }

    pub fn operations(&self) -> anyhow::Result<Option<Metric>> {
        let metric = |expression: &String| format!("operations={expression}").parse();
        self.operations.as_ref().map(metric).transpose().map_err(anyhow::Error::msg)
    }
}

/// The words of the command that is given with `option`.
pub fn words(text: &str, option: &str) -> anyhow::Result<Vec<String>> {
    option_words(text, option).with_context(|| format!("{option}: a quote is not closed"))
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
