//! The effects of the backings of several servers as rows, shared by the text and the HTML page.

use hugewise_measure::{
    comparison::{
        Case,
        effect::{Effect, Interaction},
    },
    verdict::Verdict,
};
use serde::Serialize;

use super::{
    rows::{Group, UNKNOWN},
    words,
};

/// What the table of the effects shows.
pub const LEGEND: &str = "ratio of each server's backing to base, over all backings of the other servers";

/// The effect of a backing of one server.
#[derive(Serialize)]
pub struct EffectRow {
    /// The parameters of the case; empty if the group has a single case.
    pub of: String,
    pub server: String,
    pub backing: String,
    pub blocks: usize,
    pub ratio: String,
    /// The ratio of the CPU time of the server itself.
    pub own_cpu: String,
    pub verdict: String,
    #[serde(skip)]
    pub kind: Verdict,
}

/// The rows of a group.
pub fn rows(group: &Group<'_>) -> Vec<EffectRow> {
    let row = |(case, effect): (&Case, &Effect)| EffectRow {
        of: group.parameters(case),
        server: effect.server.clone(),
        backing: effect.backing.to_string(),
        blocks: effect.blocks,
        ratio: effect.ratio.as_ref().map_or_else(|| UNKNOWN.to_owned(), words::ratio),
        own_cpu: own_cpu(effect).unwrap_or_else(|| UNKNOWN.to_owned()),
        verdict: words::verdict(effect.verdict, effect.ratio, group.figure.better),
        kind: effect.verdict,
    };
    group.effects().map(row).collect()
}

fn own_cpu(effect: &Effect) -> Option<String> {
    let figure = |name: &str| effect.figures.get(&format!("{}_{name}", effect.server));
    figure("cpu_per_operation").or_else(|| figure("cpu")).map(words::ratio)
}

/// How the effects depend on the backings of other servers, in sentences.
pub fn interactions(group: &Group<'_>) -> Vec<String> {
    let sentences = |(case, effect): (&Case, &Effect)| -> Vec<String> {
        let name = group.of_effect(case, effect);
        let sentence = |interaction: &Interaction| {
            let ratio = interaction.ratio?;
            let other = format!("{}={}", interaction.server, interaction.backing);
            let depends = match ratio {
                _ if ratio.high < 1.0 => "it gains more there",
                _ if ratio.low > 1.0 => "it gains less there",
                _ => "no dependence is shown",
            };
            Some(format!(
                "With {other}, the ratio of {name} is {} times that with {}=base: {depends}.",
                words::ratio(&ratio),
                interaction.server
            ))
        };
        effect.interactions.iter().filter_map(sentence).collect()
    };
    group.effects().flat_map(sentences).collect()
}
