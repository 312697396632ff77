//! Figures that a workload reports itself, in its output or in a result file of JMH.

use std::{
    fs,
    path::Path,
    str::FromStr,
    time::{Duration, SystemTime},
};

use regex::Regex;
use serde_json::Value;

use crate::{
    comparison::{Better, Figure},
    execution::{Execution, last_lines},
};

/// A figure that is read from the output of a workload.
#[derive(Clone, Debug)]
pub struct Metric {
    figure: Figure,
    /// Matches the value: the first group of the last match in the output, or the whole match.
    expression: Regex,
}

#[derive(Debug, thiserror::Error)]
pub enum MetricError {
    #[error("'{0}' is not NAME=REGEX, like 'ops/s=throughput: ([0-9.]+)'")]
    Syntax(String),
    #[error("the expression of metric '{0}': {1}")]
    Expression(String, regex::Error),
}

impl FromStr for Metric {
    type Err = MetricError;

    /// Parses `NAME=REGEX`. Higher is better if NAME begins with `+` or ends in `/s`, else lower is.
    fn from_str(text: &str) -> Result<Metric, MetricError> {
        let (name, expression) = text.split_once('=').ok_or_else(|| MetricError::Syntax(text.to_owned()))?;
        let plain = name.trim_start_matches('+').trim();
        if plain.is_empty() || expression.is_empty() {
            return Err(MetricError::Syntax(text.to_owned()));
        }
        let expression =
            Regex::new(expression).map_err(|error| MetricError::Expression(plain.to_owned(), error))?;
        let higher = name.starts_with('+') || plain.ends_with("/s");
        let better = if higher { Better::Higher } else { Better::Lower };
        Ok(Metric { figure: Figure { name: plain.to_owned(), unit: String::new(), better }, expression })
    }
}

impl Metric {
    /// The figure that the embedded Java workload prints.
    pub(crate) fn nanoseconds_per_operation() -> Result<Metric, MetricError> {
        let mut metric: Metric = r"time=ns/op: ([0-9.E+-]+)".parse()?;
        metric.figure.unit = "ns/op".to_owned();
        Ok(metric)
    }

    /// Name, unit and direction.
    #[must_use]
    pub fn figure(&self) -> Figure {
        self.figure.clone()
    }

    /// The value in one run.
    pub(crate) fn read(&self, execution: &Execution) -> Result<f64, String> {
        let (name, expression) = (&self.figure.name, &self.expression);
        let found = expression
            .captures_iter(&execution.output)
            .last()
            .and_then(|captures| captures.get(1).or_else(|| captures.get(0)))
            .ok_or_else(|| {
                format!(
                    "metric '{name}': nothing in the program's output matches '{expression}'{}",
                    last_lines(&execution.output)
                )
            })?;
        number(found.as_str()).ok_or_else(|| {
            format!("metric '{name}': '{}' is not a number; put ( ) around the number", found.as_str())
        })
    }
}

/// The scores in the result file that JMH wrote in this run (`-rf json -rff FILE`), in its order.
pub(crate) fn jmh_scores(file: &Path, execution: &Execution) -> Result<Vec<(Figure, f64)>, String> {
    written_by(file, execution)?;
    let text = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let results: Vec<Value> = serde_json::from_slice(&text)
        .map_err(|error| format!("{} is not a JSON result of JMH: {error}", file.display()))?;
    let scores: Option<Vec<(Figure, f64)>> = results
        .iter()
        .map(|result| Some((jmh_figure(result), result["primaryMetric"]["score"].as_f64()?)))
        .collect();
    match scores {
        Some(scores) if !scores.is_empty() => Ok(scores),
        _ => Err(format!("{} holds no scores, or one that is not a number", file.display())),
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

/// Rejects the result file of an earlier run.
fn written_by(file: &Path, execution: &Execution) -> Result<(), String> {
    let modified = fs::metadata(file).and_then(|found| found.modified()).map_err(|error| {
        format!("{}: {error}; does the command write it (-rf json -rff {0})?", file.display())
    })?;
    // File times can lag by one clock tick.
    let began = SystemTime::now() - execution.wall - Duration::from_millis(20);
    if modified < began {
        return Err(format!("{} was not written by this run: give JMH '-rff {0}'", file.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{error::Error, process::Command};

    use hugewise_linux::sys::process::{GroupLeader, monotonic_ns};

    use super::*;

    fn printed(output: &str) -> Result<Execution, Box<dyn Error>> {
        let mut child = GroupLeader::start(&mut Command::new("true"), false)?;
        let ended = loop {
            if let Some(ended) = child.wait(Duration::from_secs(1))? {
                break ended;
            }
        };
        let output = output.to_owned();
        Ok(Execution { started_ns: monotonic_ns(), wall: Duration::from_millis(1), ended, output })
    }

    #[test]
    fn the_last_match_counts_and_its_first_group() -> Result<(), Box<dyn Error>> {
        let metric: Metric = r"ops/s=throughput: ([\d,.]+)".parse()?;
        assert_eq!(metric.figure().better, Better::Higher);
        let read = metric.read(&printed("throughput: 3\nthroughput: 1,234.5\n")?)?;
        assert_eq!(read, 1234.5);
        let plain: Metric = r"latency=\d+".parse()?;
        assert_eq!(plain.figure().better, Better::Lower);
        assert_eq!(plain.read(&printed("took 12 ms")?)?, 12.0);
        Ok(())
    }

    #[test]
    fn a_metric_that_never_matches_shows_what_was_printed() -> Result<(), Box<dyn Error>> {
        let metric: Metric = "x=y([0-9]+)".parse()?;
        let error = metric.read(&printed("something else")?).err().ok_or("matched")?;
        assert!(error.contains("something else"), "{error}");
        assert!("noequals".parse::<Metric>().is_err() && "=x".parse::<Metric>().is_err());
        assert!("a=(".parse::<Metric>().is_err());
        Ok(())
    }

    #[test]
    fn scores_of_jmh_are_read_and_stale_ones_refused() -> Result<(), Box<dyn Error>> {
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
