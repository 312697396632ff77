//! Values of metrics in the text format of Prometheus.

use std::{collections::BTreeMap, fmt, str::FromStr};

use hugewise_linux::reading::Reason;

/// Selects the series of a metric: `NAME`, or `NAME{LABEL="VALUE",…}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    name: String,
    labels: BTreeMap<String, String>,
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.labels.is_empty() {
            return Ok(());
        }
        let labels: Vec<String> =
            self.labels.iter().map(|(label, value)| format!("{label}={value:?}")).collect();
        write!(f, "{{{}}}", labels.join(","))
    }
}

impl FromStr for Selector {
    type Err = Reason;

    fn from_str(text: &str) -> Result<Selector, Reason> {
        match series(text.trim()) {
            Some((name, labels, "")) => Ok(Selector { name: name.to_owned(), labels }),
            _ => Reason::err(format!(
                "'{text}' is not a selector like 'http_requests_total' or 'http_requests_total{{code=\"200\"}}'"
            )),
        }
    }
}

impl Selector {
    /// The sum of all series with this name and these labels; `None` if there is none.
    pub fn sum(&self, text: &str) -> Option<f64> {
        let of_line = |line: &str| {
            let (name, labels, rest) = series(line)?;
            let is_selected = name == self.name
                && self.labels.iter().all(|(label, value)| labels.get(label) == Some(value));
            // The value may be followed by a timestamp.
            is_selected.then(|| rest.split_whitespace().next()?.parse::<f64>().ok()).flatten()
        };
        text.lines().map(str::trim).filter_map(of_line).reduce(|sum, value| sum + value)
    }

    /// Whether the metric is a counter: by its type in `text`, or by its name.
    pub fn is_counter(&self, text: &str) -> bool {
        let declared = text.lines().find_map(|line| {
            let mut words = line.trim().strip_prefix("# TYPE ")?.split_whitespace();
            let name = words.next()?;
            let is_its = name == self.name || Some(name) == self.name.strip_suffix("_total");
            is_its.then(|| words.next()).flatten()
        });
        match declared {
            Some(declared) => declared == "counter",
            None => ["_total", "_count", "_sum"].iter().any(|end| self.name.ends_with(end)),
        }
    }
}

/// Parses `NAME` or `NAME{LABEL="VALUE",…}`; returns the rest of the text, too.
fn series(text: &str) -> Option<(&str, BTreeMap<String, String>, &str)> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let end = text.find(|c| !is_of_name(c)).unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            rest = rest.trim_start_matches([',', ' ']);
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (label, quoted) = rest.split_once('=')?;
            let (value, after) = unquoted(quoted.trim_start().strip_prefix('"')?)?;
            labels.insert(label.trim().to_owned(), value);
            rest = after;
        }
    }
    Some((name, labels, rest))
}

/// The text up to the closing quote, without escapes, and the text after it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "# HELP http_requests_total Requests.\n\
        # TYPE http_requests_total counter\n\
        http_requests_total{code=\"200\",path=\"/a}b\\\"\"} 10 1700000000\n\
        http_requests_total{code=\"200\",path=\"/b\"} 5\n\
        http_requests_total{code=\"500\"} 1\n\
        # TYPE queue gauge\n\
        queue 3.5\n\
        queue_total 7\n";

    #[test]
    fn series_are_selected_and_summed() -> Result<(), Reason> {
        let sum = |text: &str| -> Result<Option<f64>, Reason> { Ok(text.parse::<Selector>()?.sum(TEXT)) };
        assert_eq!(sum("http_requests_total")?, Some(16.0));
        assert_eq!(sum("http_requests_total{code=\"200\"}")?, Some(15.0));
        assert_eq!(sum(r#"http_requests_total{path="/a}b\"", code="200"}"#)?, Some(10.0));
        assert_eq!(sum("queue")?, Some(3.5));
        assert_eq!(sum("requests_total")?, None);
        assert!("a b".parse::<Selector>().is_err() && "{}".parse::<Selector>().is_err());
        assert!("a{b=c}".parse::<Selector>().is_err() && "".parse::<Selector>().is_err());
        Ok(())
    }

    #[test]
    fn a_counter_is_known_by_its_type_or_name() -> Result<(), Reason> {
        let is_counter =
            |name: &str| -> Result<bool, Reason> { Ok(name.parse::<Selector>()?.is_counter(TEXT)) };
        assert!(is_counter("http_requests_total")? && !is_counter("queue")?);
        assert!(is_counter("other_total")? && !is_counter("other")?);
        Ok(())
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "[a-z{}=\"\\\\, 0-9]*", lines in any::<String>()) {
            if let Ok(selector) = text.parse::<Selector>() {
                let _ = (selector.sum(&lines), selector.sum(TEXT), selector.is_counter(&lines));
            }
            let _ = series(&lines);
        }
    }
}
