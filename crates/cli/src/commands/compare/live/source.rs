//! The source of the metrics of a live comparison: the output of a command, or a page.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use anyhow::{Context, anyhow, bail, ensure};
use hugewise_linux::{
    bounded_run,
    reading::Reason,
    shell,
    sys::{
        aside::{self, Deadline},
        process::Program,
    },
};
use hugewise_measure::workload::metric::Metric;

/// Longest wait for a page, and for the end of a command.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest page that is read, in bytes.
const MAX_PAGE_BYTES: u64 = 16 << 20;

/// Where the text with the metrics comes from.
#[derive(Clone, Debug)]
enum Text {
    /// The program and its arguments.
    Command(Vec<String>),
    Page(Url),
}

/// A URL of the scheme http.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Host and port.
    authority: String,
    path: String,
}

impl std::str::FromStr for Url {
    type Err = Reason;

    fn from_str(text: &str) -> Result<Url, Reason> {
        let Some(rest) = text.strip_prefix("http://") else {
            return Reason::err("must begin with http://; for https, use --metric-command 'curl …'");
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.is_empty() || text.contains(|c: char| c.is_control() || c == ' ') {
            return Reason::err("must be like http://127.0.0.1:9100/metrics");
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:80") };
        Ok(Url { authority, path: if path.is_empty() { "/".to_owned() } else { path.to_owned() } })
    }
}

impl Url {
    /// Reads the page until `deadline`, which holds for the name, the connection, and all bytes together.
    fn get(&self, deadline: &Deadline<'_>) -> anyhow::Result<String> {
        // Aside: neither the resolver of names nor the server can be interrupted.
        let limit = MAX_PAGE_BYTES as usize;
        let page = aside::ask(&[], deadline, limit, || {
            let page = self.fetch().map_err(|error| io::Error::other(format!("{error:#}")))?;
            Ok(page.into_bytes())
        });
        let page = page.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => anyhow!("{} did not send the page within {TIMEOUT:?}", self.authority),
            _ => error.into(),
        })?;
        Ok(String::from_utf8_lossy(&page).into_owned())
    }

    fn fetch(&self) -> anyhow::Result<String> {
        let mut addresses = self.authority.to_socket_addrs().with_context(|| self.authority.clone())?;
        let address = addresses.next().with_context(|| format!("{} has no address", self.authority))?;
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)
            .with_context(|| format!("cannot connect to {address}"))?;
        // Version 1.0: the answer is not chunked, and ends with the connection.
        let request =
            format!("GET {} HTTP/1.0\r\nHost: {}\r\nAccept: text/plain\r\n\r\n", self.path, self.authority);
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(MAX_PAGE_BYTES).read_to_end(&mut answer)?;
        body(&String::from_utf8_lossy(&answer))
    }
}

/// The text of a page, from the whole answer.
fn body(answer: &str) -> anyhow::Result<String> {
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.split(' ').nth(1) == Some("200"), "the server answered '{status}'");
    Ok(body.to_owned())
}

/// The metrics of the user, and where their values are.
#[derive(Clone, Debug)]
pub struct MetricSource {
    text: Option<Text>,
    metrics: Vec<Metric>,
}

impl MetricSource {
    /// A source without metrics.
    pub fn none() -> MetricSource {
        MetricSource { text: None, metrics: Vec::new() }
    }

    /// At most one of `command` and `page` is given.
    pub fn new(
        command: Option<Vec<String>>,
        page: Option<&Url>,
        metrics: &[Metric],
    ) -> anyhow::Result<MetricSource> {
        let text = match (command, page) {
            (Some(command), _) => Some(Text::Command(command)),
            (None, Some(page)) => Some(Text::Page(page.clone())),
            (None, None) => None,
        };
        match (&text, metrics.is_empty()) {
            (None, false) => bail!("--metric with --live needs --metric-command or --metric-url"),
            (Some(_), true) => {
                bail!("--metric-command and --metric-url need --metric NAME=REGEX or NAME=prom:SELECTOR")
            }
            _ => Ok(MetricSource { text, metrics: metrics.to_vec() }),
        }
    }

    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// The text that contains the values; empty if there are no metrics.
    pub fn text(&self) -> anyhow::Result<String> {
        match &self.text {
            None => Ok(String::new()),
            Some(Text::Page(page)) => page.get(&Deadline::of_reading(TIMEOUT)),
            Some(Text::Command(words)) => output(words, TIMEOUT),
        }
    }

    /// The values of the metrics; `None` for each that could not be read.
    pub fn read(&self) -> Vec<Option<f64>> {
        let text = self.text().unwrap_or_default();
        self.metrics.iter().map(|metric| metric.find(&text).ok().flatten()).collect()
    }
}

/// What a command prints.
fn output(words: &[String], timeout: Duration) -> anyhow::Result<String> {
    let line = shell::line(words);
    let (program, arguments) = words.split_first().context("--metric-command: no command is given")?;
    let mut command = Program::new(program);
    command.args(arguments);
    let ran = bounded_run::run_with_timeout(command, timeout)
        .with_context(|| format!("--metric-command: cannot run '{line}'"))?
        .with_context(|| format!("--metric-command: '{line}' did not end within {timeout:?}"))?;
    ensure!(ran.status.success(), "--metric-command: '{line}' failed: {}", ran.stderr.trim());
    Ok(ran.stdout)
}

#[cfg(test)]
mod tests {
    use std::{error::Error, io::BufRead, io::BufReader, net::TcpListener, thread, time::Instant};

    use super::*;

    #[test]
    fn a_page_is_read() -> Result<(), Box<dyn Error>> {
        let server = TcpListener::bind("127.0.0.1:0")?;
        let address = server.local_addr()?;
        let served = thread::spawn(move || -> io::Result<Vec<String>> {
            let mut requests = Vec::new();
            for answer in
                ["HTTP/1.1 200 OK\r\nX: y\r\n\r\nrequests_total 7\n", "HTTP/1.0 404 Not Found\r\n\r\n"]
            {
                let (mut stream, _) = server.accept()?;
                let mut lines = BufReader::new(stream.try_clone()?).lines();
                requests.extend(lines.next().transpose()?);
                while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
                stream.write_all(answer.as_bytes())?;
            }
            Ok(requests)
        });
        let url: Url = format!("http://{address}/metrics").parse()?;
        let metrics = ["requests/s=prom:requests_total".parse()?];
        let source = MetricSource::new(None, Some(&url), &metrics)?;
        assert_eq!(source.read(), [Some(7.0)]);
        assert!(source.text().is_err_and(|error| error.to_string().contains("404")));
        let requests = served.join().map_err(|_| "the server panicked")??;
        assert_eq!(requests, ["GET /metrics HTTP/1.0", "GET /metrics HTTP/1.0"]);
        Ok(())
    }

    #[test]
    fn a_page_that_drips_has_one_deadline() -> Result<(), Box<dyn Error>> {
        let server = TcpListener::bind("127.0.0.1:0")?;
        let url: Url = format!("http://{}/", server.local_addr()?).parse()?;
        let begin = Instant::now();
        let drips = thread::spawn(move || -> io::Result<()> {
            let (mut stream, _) = server.accept()?;
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n")?;
            while begin.elapsed() < Duration::from_secs(30) {
                stream.write_all(b"#")?;
                thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        });
        let page = url.get(&Deadline::after(Duration::from_millis(200), None));
        assert!(page.is_err_and(|error| error.to_string().contains("did not send the page")));
        // The connection was closed.
        assert!(drips.join().is_ok_and(|written| written.is_err()));
        Ok(())
    }

    #[test]
    fn urls_are_of_http() -> Result<(), Box<dyn Error>> {
        let url: Url = "http://localhost".parse()?;
        assert_eq!((url.authority.as_str(), url.path.as_str()), ("localhost:80", "/"));
        assert!("https://a/".parse::<Url>().is_err() && "http://".parse::<Url>().is_err());
        assert!("http://a/ b\r\nX: y".parse::<Url>().is_err());
        Ok(())
    }

    #[test]
    fn a_command_has_its_values_or_its_error() -> Result<(), Box<dyn Error>> {
        let metrics = ["ops/s=counter:n ([0-9]+)".parse()?, "x=absent ([0-9]+)".parse()?];
        let command = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
        let source = MetricSource::new(command(&["echo", "n 12", "$HOME;"]), None, &metrics)?;
        assert_eq!(source.read(), [Some(12.0), None]);
        assert_eq!(source.text()?, "n 12 $HOME;\n", "no shell reads the arguments");
        for (words, error) in [
            (&["sh", "-c", "echo why >&2; exit 3"][..], "why"),
            (&["/nowhere/to/run"], "cannot run '/nowhere/to/run'"),
            (&[], "no command is given"),
        ] {
            let text = MetricSource::new(command(words), None, &metrics)?.text();
            assert!(text.is_err_and(|text| format!("{text:#}").contains(error)), "{error}");
        }
        let slow = output(&["sleep".to_owned(), "1000".to_owned()], Duration::from_millis(10));
        assert!(slow.is_err_and(|error| format!("{error:#}").contains("did not end within 10ms")));
        assert!(MetricSource::new(None, None, &metrics).is_err());
        assert!(MetricSource::new(command(&["true"]), None, &[]).is_err());
        Ok(())
    }
}
