//! Figures that a workload reports itself, in its output or in a result file of JMH.

use std::{
    fmt::Display,
    fs,
    path::Path,
    str::FromStr,
    time::{Duration, SystemTime},
};

use hugewise_linux::{reading::Reason, sys::file};
use regex::Regex;
use serde_json::Value;

use crate::{
    comparison::{Better, Figure},
    execution::{Execution, last_lines},
    workload::prometheus::Selector,
};

/// Figures of every process that can be chosen by their name, with their units.
const OF_PROCESS: [(&str, &str); 7] = [
    ("wall", "s"),
    ("cpu", "s"),
    ("user", "s"),
    ("sys", "s"),
    ("peak_memory", "bytes"),
    ("minor_faults", ""),
    ("major_faults", ""),
];

/// A figure that the user chose.
#[derive(Clone, Debug)]
pub struct Metric {
    figure: Figure,
    /// Whether `counter:` precedes the expression.
    is_declared_counter: bool,
    source: Source,
}

/// The source of a metric's value.
#[derive(Clone, Debug)]
enum Source {
    /// A figure of the process.
    Process,
    /// The first group of the last match in a text, or the whole match.
    Expression(Regex),
    /// Series in the text format of Prometheus.
    Prometheus(Selector),
}

/// Largest result file of JMH, in bytes.
const MAX_RESULT_BYTES: u64 = 256 << 20;
/// Precedes the selector of a Prometheus metric.
const PROMETHEUS: &str = "prom:";
/// Precedes the expression of a counter.
const COUNTER: &str = "counter:";

impl FromStr for Metric {
    type Err = Reason;

    /// Parses `NAME=REGEX`, `NAME=prom:SELECTOR`, both with `counter:` before the expression if it is a counter, or
    /// the name of a figure of the process. Higher is better if NAME begins with `+` or ends in `/s`, else lower
    /// is.
    fn from_str(text: &str) -> Result<Metric, Reason> {
        if let Some((name, unit)) = OF_PROCESS.into_iter().find(|(name, _)| *name == text) {
            let figure = Figure { name: name.to_owned(), unit: unit.to_owned(), better: Better::Lower };
            return Ok(Metric { figure, is_declared_counter: true, source: Source::Process });
        }
        let (name, expression) = text.split_once('=').unwrap_or_default();
        let plain = name.trim_start_matches('+').trim();
        if plain.is_empty() || expression.is_empty() {
            let names = OF_PROCESS.map(|(name, _)| name).join(", ");
            return Reason::err(format!(
                "'{text}' is neither NAME=REGEX, like 'ops/s=throughput: ([0-9.]+)', nor one of {names}"
            ));
        }
        let (is_declared_counter, expression) = match expression.strip_prefix(COUNTER) {
            Some(expression) => (true, expression),
            None => (false, expression),
        };
        let source = match expression.strip_prefix(PROMETHEUS) {
            Some(selector) => Source::Prometheus(selector.parse()?),
            None => Source::Expression(
                Regex::new(expression)
                    .map_err(|error| Reason::new(format!("the expression of metric '{plain}': {error}")))?,
            ),
        };
        let higher = name.starts_with('+') || plain.ends_with("/s");
        let better = if higher { Better::Higher } else { Better::Lower };
        Ok(Metric {
            figure: Figure { name: plain.to_owned(), unit: String::new(), better },
            is_declared_counter,
            source,
        })
    }
}

impl Metric {
    /// The figure that the embedded Java workload prints.
    pub(crate) fn nanoseconds_per_operation() -> Result<Metric, Reason> {
        let mut metric: Metric = r"time=ns/op: ([0-9.E+-]+)".parse()?;
        metric.figure.unit = "ns/op".to_owned();
        Ok(metric)
    }

    /// Name, unit and direction.
    pub fn figure(&self) -> Figure {
        self.figure.clone()
    }

    /// Whether its value is in a text, not a figure of the process.
    pub(crate) fn is_printed(&self) -> bool {
        !matches!(self.source, Source::Process)
    }

    /// Whether its value in `text` is a counter.
    pub fn is_counter(&self, text: &str) -> bool {
        let is_by_format =
            || matches!(&self.source, Source::Prometheus(selector) if selector.is_counter(text));
        self.is_declared_counter || is_by_format()
    }

    /// The value that one run printed; `None` for a figure of the process.
    pub(crate) fn read(&self, execution: &Execution) -> Result<Option<f64>, Reason> {
        self.find(&execution.output)
    }

    /// The value in `text`; `None` for a figure of the process.
    pub fn find(&self, text: &str) -> Result<Option<f64>, Reason> {
        let name = &self.figure.name;
        let nothing = |what: &dyn Display| {
            Reason::new(format!(
                "metric '{name}': nothing in the output matches '{what}'{}",
                last_lines(text)
            ))
        };
        let expression = match &self.source {
            Source::Process => return Ok(None),
            Source::Prometheus(selector) => {
                return selector.sum(text).map(Some).ok_or_else(|| nothing(selector));
            }
            Source::Expression(expression) => expression,
        };
        let last = expression.captures_iter(text).last();
        let Some(found) = last.and_then(|captures| captures.get(1).or_else(|| captures.get(0))) else {
            return Err(nothing(expression));
        };
        let found = found.as_str();
        match number(found) {
            None => {
                Reason::err(format!("metric '{name}': '{found}' is not a number; put ( ) around the number"))
            }
            number => Ok(number),
        }
    }
}

/// The scores in the result file that JMH wrote in this run (`-rf json -rff FILE`), in its order.
pub(crate) fn jmh_scores(file: &Path, execution: &Execution) -> Result<Vec<(Figure, f64)>, Reason> {
    let path = file.display();
    let modified = fs::metadata(file).and_then(|found| found.modified()).map_err(|error| {
        Reason::new(format!("{path}: {error}; does the command write it (-rf json -rff {path})?"))
    })?;
    // The file of an earlier run is rejected. File times can lag by one clock tick.
    if modified < SystemTime::now() - execution.wall - Duration::from_millis(20) {
        return Reason::err(format!("{path} was not written by this run: give JMH '-rff {path}'"));
    }
    let text = file::read(file, MAX_RESULT_BYTES).map_err(|error| Reason::new(format!("{path}: {error}")))?;
    let results: Vec<Value> = serde_json::from_slice(&text)
        .map_err(|error| Reason::new(format!("{path} is not a JSON result of JMH: {error}")))?;
    let scores: Option<Vec<(Figure, f64)>> = results
        .iter()
        .map(|result| Some((jmh_figure(result), result["primaryMetric"]["score"].as_f64()?)))
        .collect();
    match scores {
        Some(scores) if !scores.is_empty() => Ok(scores),
        _ => Reason::err(format!("{path} holds no scores, or one that is not a number")),
    }
}

/// Name such as `Cache.get n=10`, from class, method and parameters.
fn jmh_figure(result: &Value) -> Figure {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let benchmark = text(&result["benchmark"]);
    let short: Vec<&str> = benchmark.rsplitn(3, '.').take(2).collect();
    let mut name = short.into_iter().rev().collect::<Vec<_>>().join(".");
    for (key, value) in result["params"].as_object().into_iter().flatten() {
        name = format!("{name} {key}={}", text(value));
    }
    let better = if result["mode"] == "thrpt" { Better::Higher } else { Better::Lower };
    Figure { name, unit: text(&result["primaryMetric"]["scoreUnit"]), better }
}

/// Parses a number, with or without thousands separators as in `1,234,567.8`.
fn number(text: &str) -> Option<f64> {
    let plain = text.trim().replace([',', '_'], "");
    plain.parse::<f64>().ok().filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use hugewise_linux::sys::process::{Program, monotonic_ns};

    use super::*;

    fn printed(output: &str) -> Result<Execution, Box<dyn Error + Send + Sync>> {
        let mut child = Program::new("true").start()?;
        let ended = loop {
            if let Some(ended) = child.wait(Duration::from_secs(1))? {
                break ended;
            }
        };
        let output = output.to_owned();
        Ok(Execution { started_ns: monotonic_ns(), wall: Duration::from_millis(1), ended, output })
    }

    #[test]
    fn the_last_match_counts_and_its_first_group() -> Result<(), Box<dyn Error + Send + Sync>> {
        let metric: Metric = r"ops/s=throughput: ([\d,.]+)".parse()?;
        assert_eq!(metric.figure().better, Better::Higher);
        let read = metric.read(&printed("throughput: 3\nthroughput: 1,234.5\n")?)?;
        assert_eq!(read, Some(1234.5));
        let plain: Metric = r"latency=\d+".parse()?;
        assert_eq!(plain.figure().better, Better::Lower);
        assert_eq!(plain.read(&printed("took 12 ms")?)?, Some(12.0));
        Ok(())
    }

    #[test]
    fn a_metric_that_never_matches_shows_what_was_printed() -> Result<(), Box<dyn Error + Send + Sync>> {
        let metric: Metric = "x=y([0-9]+)".parse()?;
        let error = metric.read(&printed("something else")?).err().ok_or("matched")?;
        assert!(error.to_string().contains("something else"), "{error}");
        let of_process: Metric = "cpu".parse()?;
        assert_eq!((of_process.read(&printed("12")?)?, of_process.figure().unit), (None, "s".to_owned()));
        assert!("noequals".parse::<Metric>().is_err() && "=x".parse::<Metric>().is_err());
        assert!("a=(".parse::<Metric>().is_err());
        Ok(())
    }

    #[test]
    fn a_counter_is_declared_or_known_by_its_format() -> Result<(), Box<dyn Error>> {
        let metric = |text: &str| text.parse::<Metric>();
        let text = "total: 12\nrequests_total{code=\"200\"} 7\n";
        let declared = metric("ops/s=counter:total: ([0-9]+)")?;
        assert_eq!((declared.find(text)?, declared.is_counter(text)), (Some(12.0), true));
        let plain = metric("ops/s=total: ([0-9]+)")?;
        assert_eq!((plain.find(text)?, plain.is_counter(text)), (Some(12.0), false));
        let prometheus = metric("ops/s=prom:requests_total{code=\"200\"}")?;
        assert_eq!((prometheus.find(text)?, prometheus.is_counter(text)), (Some(7.0), true));
        assert_eq!(prometheus.figure().better, Better::Higher);
        assert!(prometheus.find("").is_err() && metric("x=prom:a b").is_err());
        Ok(())
    }

    #[test]
    fn scores_of_jmh_are_read_and_stale_ones_refused() -> Result<(), Box<dyn Error + Send + Sync>> {
        let run = printed("")?;
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("jmh.json");
        fs::write(
            &file,
            r#"[{"benchmark":"org.x.Cache.get","mode":"thrpt","params":{"n":"10"},
                 "primaryMetric":{"score":42.5,"scoreUnit":"ops/ms"}}]"#,
        )?;
        let scores = jmh_scores(&file, &run)?;
        let (figure, score) = &scores[0];
        assert_eq!((figure.name.as_str(), figure.unit.as_str(), *score), ("Cache.get n=10", "ops/ms", 42.5));
        assert_eq!(figure.better, Better::Higher);
        fs::File::options()
            .write(true)
            .open(&file)?
            .set_modified(SystemTime::now() - Duration::from_secs(60))?;
        assert!(jmh_scores(&file, &run).is_err());
        Ok(())
    }
}
