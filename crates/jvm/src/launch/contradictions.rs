//! Options that contradict each other, and how a JVM resolves them.
//!
//! Source: the observed behaviour of JDK 17 and 25. Whether a flag exists is not decided here, but by the JVM
//! itself ([`crate::flags::final_flags`]).

use crate::collector::{Collector, SWITCHES};

use super::{EffectiveOptions, JvmOption, OptionSource};

/// Options of one line that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The options, each with its source unless that is the command line.
    pub options: Vec<String>,
    /// How the JVM resolves them, in one sentence.
    pub outcome: String,
    /// Whether the JVM refuses to start.
    pub refused: bool,
}

impl Contradiction {
    fn of<'a>(
        options: impl IntoIterator<Item = &'a JvmOption>,
        outcome: impl Into<String>,
        refused: bool,
    ) -> Contradiction {
        let options = options.into_iter().map(shown).collect();
        Contradiction { options, outcome: outcome.into(), refused }
    }
}

/// Boolean flags that decide the page size.
const PAGE_SWITCHES: [&str; 4] = ["UseLargePages", "UseTransparentHugePages", "UseHugeTLBFS", "UseSHM"];

/// Contradictions among these options.
pub fn contradictions(effective: &EffectiveOptions) -> Vec<Contradiction> {
    let mut found = Vec::new();
    let on = |name: &str| effective.switch(name).filter(|(on, _)| *on).map(|(_, option)| option);
    let off = |name: &str| effective.switch(name).filter(|(on, _)| !*on).map(|(_, option)| option);

    let collectors: Vec<(Collector, &JvmOption)> =
        SWITCHES.iter().filter_map(|(flag, collector)| Some((*collector, on(flag)?))).collect();
    if collectors.iter().any(|(collector, _)| *collector != collectors[0].0) {
        let outcome = "the JVM refuses to start with more than one collector (\"Multiple garbage collectors \
                       selected\", before JDK 11 \"Conflicting collector combinations in option list\"): \
                       keep one of them";
        found.push(Contradiction::of(collectors.iter().map(|(_, option)| *option), outcome, true));
    }
    if let (Some((initial, first)), Some((max, last))) = (effective.initial_heap(), effective.max_heap()) {
        if initial > max {
            let outcome = format!(
                "the initial heap size {initial} exceeds the maximum {max}: the JVM refuses to start"
            );
            found.push(Contradiction::of([first, last], outcome, true));
        }
    }
    if let Some(large_off) = off("UseLargePages") {
        let wanted: Vec<&JvmOption> = PAGE_SWITCHES[1..].iter().filter_map(|flag| on(flag)).collect();
        if !wanted.is_empty() {
            let outcome = "-UseLargePages disables huge pages of every kind: the JVM runs on base pages and \
                           prints no warning";
            found.push(Contradiction::of(wanted.into_iter().chain([large_off]), outcome, false));
        }
    } else if let Some(thp) = on("UseTransparentHugePages") {
        let explicit = ["UseHugeTLBFS", "UseSHM"].iter().filter_map(|flag| on(flag));
        let explicit: Vec<_> =
            explicit.chain(effective.value("LargePageSizeInBytes").map(|(_, option)| option)).collect();
        if !explicit.is_empty() {
            let outcome = "transparent huge pages take precedence: no page is taken from a pool";
            found.push(Contradiction::of(explicit.into_iter().chain([thp]), outcome, false));
        }
    }
    for flag in PAGE_SWITCHES.iter().chain(SWITCHES.iter().map(|(flag, _)| flag)) {
        let settings: Vec<(bool, &JvmOption)> =
            effective.options.iter().filter_map(|option| Some((option.switch_of(flag)?, option))).collect();
        if settings.iter().any(|(on, _)| *on != settings[0].0) {
            found.push(last_counts(settings.into_iter().map(|(_, option)| option)));
        }
    }
    for names in [["-Xmx", "-XX:MaxHeapSize="], ["-Xms", "-XX:InitialHeapSize="]] {
        let is_named = |option: &&JvmOption| names.iter().any(|name| option.text.starts_with(name));
        let settings: Vec<&JvmOption> = effective.options.iter().filter(is_named).collect();
        let value = |option: &JvmOption| {
            option.text.trim_start_matches(|c: char| !c.is_ascii_digit()).to_ascii_lowercase()
        };
        if settings.iter().any(|option| value(option) != value(settings[0])) {
            found.push(last_counts(settings.into_iter()));
        }
    }
    found
}

fn last_counts<'a>(options: impl Iterator<Item = &'a JvmOption>) -> Contradiction {
    let options: Vec<String> = options.map(shown).collect();
    let outcome = format!("the last one takes effect: {}", options.last().map_or("", String::as_str));
    Contradiction { options, outcome, refused: false }
}

fn shown(option: &JvmOption) -> String {
    match &option.from {
        OptionSource::CommandLine => option.text.clone(),
        other => format!("{} ({other})", option.text),
    }
}
