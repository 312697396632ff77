//! `--server`: each run starts a server, and the command is its driver.

use std::{env, time::Duration};

use anyhow::Context;
use clap::Args;
use hugewise_jvm::launch::option_words;
use hugewise_measure::{
    serving::{Ready, Service},
    workload::metric::Metric,
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
        let words = |text: &String| option_words(text, "--server").context("--server: a quote is not closed");
        self.server.as_ref().map(words).transpose()
    }

    /// What is run with the server; `None` without one.
    pub fn service(&self, driver: Vec<String>) -> anyhow::Result<Option<Service>> {
        let Some(ready) = self.ready.clone() else { return Ok(None) };
        let program = env::current_exe().context("cannot determine the path of this executable")?;
        let (ready_timeout, stop_timeout) = (self.ready_timeout, self.stop_timeout);
        Ok(Some(Service { ready, ready_timeout, stop_timeout, driver, program }))
    }

    pub fn operations(&self) -> anyhow::Result<Option<Metric>> {
        let metric = |expression: &String| format!("operations={expression}").parse();
        self.operations.as_ref().map(metric).transpose().map_err(anyhow::Error::msg)
    }
}
