//! Options that contradict each other, and what a JVM makes of them.
//!
//! Source: JDK 17 and 25 as they were seen to behave. Whether a flag exists at all is not decided
//! here: the JVM itself is asked ([`crate::flags::ask`]).

use super::{Effective, JvmOption, OptionSource};

/// Options of one line that do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The options, each with its place where that is not the command line.
    pub options: Vec<String>,
    /// What the JVM makes of them, for a reader.
    pub outcome: String,
    /// Does the JVM refuse to start?
    pub refused: bool,
}

/// Collectors, and the flag that names each; the second name of one is an older word for it.
const COLLECTORS: [(&str, &str); 9] = [
    ("Serial", "UseSerialGC"),
    ("Parallel", "UseParallelGC"),
    ("Parallel", "UseParallelOldGC"),
    ("CMS", "UseConcMarkSweepGC"),
    ("CMS", "UseParNewGC"),
    ("G1", "UseG1GC"),
    ("ZGC", "UseZGC"),
    ("Shenandoah", "UseShenandoahGC"),
    ("Epsilon", "UseEpsilonGC"),
];

/// Flags that decide about large pages and are on or off.
const PAGE_SWITCHES: [&str; 4] = ["UseLargePages", "UseTransparentHugePages", "UseHugeTLBFS", "UseSHM"];

/// What is contradictory in these options; empty where all is well.
#[must_use]
pub fn contradictions(effective: &Effective) -> Vec<Contradiction> {
    let mut found = Vec::new();
    let on = |name: &str| effective.switch(name).filter(|(on, _)| *on).map(|(_, option)| option);
    let off = |name: &str| effective.switch(name).filter(|(on, _)| !*on).map(|(_, option)| option);

    let collectors: Vec<(&str, &JvmOption)> =
        COLLECTORS.iter().filter_map(|(collector, flag)| Some((*collector, on(flag)?))).collect();
    if collectors.iter().any(|(collector, _)| *collector != collectors[0].0) {
        found.push(Contradiction {
            options: collectors.iter().map(|(_, option)| shown(option)).collect(),
            outcome: "a JVM has one collector and refuses to start with more (\"Multiple garbage collectors \
                      selected\", before JDK 11 \"Conflicting collector combinations in option list\"): \
                      leave one of them"
                .to_owned(),
            refused: true,
        });
    }
    if let (Some((initial, first)), Some((max, last))) = (effective.initial_heap(), effective.max_heap()) {
        if initial > max {
            found.push(Contradiction {
                options: vec![shown(first), shown(last)],
                outcome: format!(
                    "the heap cannot begin with {initial} where {max} is its most: the JVM refuses to start"
                ),
                refused: true,
            });
        }
    }
    if let Some(large_off) = off("UseLargePages") {
        let wanted: Vec<&JvmOption> = PAGE_SWITCHES[1..].iter().filter_map(|flag| on(flag)).collect();
        if !wanted.is_empty() {
            found.push(Contradiction {
                options: wanted.into_iter().chain([large_off]).map(shown).collect(),
                outcome: "-UseLargePages switches huge pages of every kind off: the JVM runs on base pages, \
                          without a word"
                    .to_owned(),
                refused: false,
            });
        }
    } else if let Some(thp) = on("UseTransparentHugePages") {
        let explicit = ["UseHugeTLBFS", "UseSHM"].iter().filter_map(|flag| on(flag));
        let explicit: Vec<_> =
            explicit.chain(effective.value("LargePageSizeInBytes").map(|(_, option)| option)).collect();
        if !explicit.is_empty() {
            found.push(Contradiction {
                options: explicit.into_iter().chain([thp]).map(shown).collect(),
                outcome: "transparent huge pages win: no page is taken from a pool".to_owned(),
                refused: false,
            });
        }
    }
    for flag in PAGE_SWITCHES.iter().chain(COLLECTORS.iter().map(|(_, flag)| flag)) {
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
    let outcome = format!("the last one counts: {}", options.last().map_or("", String::as_str));
    Contradiction { options, outcome, refused: false }
}

fn shown(option: &JvmOption) -> String {
    match &option.from {
        OptionSource::CommandLine => option.text.clone(),
        other => format!("{} ({other})", option.text),
    }
}
