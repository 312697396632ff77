//! When a server is ready.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use hugewise_linux::reading::Reason;
use regex::Regex;

/// A local connection is accepted or refused at once.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);

/// The sign that a server is ready.
#[derive(Clone, Debug)]
pub enum Ready {
    /// It accepts connections on this TCP port of the loopback interface.
    Port(u16),
    /// It accepts connections on the port that was chosen for it.
    ChosenPort,
    /// This file exists, and was written after the start.
    File(PathBuf),
    /// A line of its output matches.
    Output(Regex),
}

impl FromStr for Ready {
    type Err = Reason;

    /// Parses a port, `{port}`, an absolute path, or else a regular expression.
    fn from_str(text: &str) -> Result<Ready, Reason> {
        if text == super::PORT {
            return Ok(Ready::ChosenPort);
        }
        if let Ok(port) = text.parse() {
            return Ok(Ready::Port(port));
        }
        if text.starts_with('/') {
            return Ok(Ready::File(text.into()));
        }
        if text.is_empty() {
            return Reason::err("a port, {port}, an absolute path or a regular expression is expected");
        }
        Regex::new(text).map(Ready::Output).map_err(|error| Reason::new(error.to_string()))
    }
}

impl Ready {
    /// Whether the server is ready.
    ///
    /// `output`: what it has printed; `port`: the port that was chosen for it.
    pub(super) fn is_met(&self, port: u16, output: &mut dyn FnMut() -> std::io::Result<String>) -> bool {
        match self {
            Ready::Port(port) => accepts(*port),
            Ready::ChosenPort => accepts(port),
            Ready::File(path) => path.exists(),
            Ready::Output(expression) => {
                output().is_ok_and(|text| text.lines().any(|line| expression.is_match(line)))
            }
        }
    }

    /// Fails if the sign exists before the server is started.
    pub(super) fn check_absent(&self) -> Result<(), String> {
        match self {
            Ready::File(path) if path.exists() => Err(format!(
                "{} exists before the server is started: the server must remove it at its end",
                path.display()
            )),
            Ready::Port(port) if accepts(*port) => {
                Err(format!("another program accepts connections on port {port}"))
            }
            _ => Ok(()),
        }
    }
}

fn accepts(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok()
}
