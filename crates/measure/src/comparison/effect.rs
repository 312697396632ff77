//! The effects of the backings of several servers.

use std::collections::BTreeMap;

use hugewise_linux::{action::Action, hugepages::backing::Backing};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{statistics::Ratio, verdict::Verdict};

/// The effect of the backing of one of several servers: relative to base, over all backings of the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// Index into [`super::Comparison::cases`].
    pub case: usize,
    /// The values from [`super::Case::parameters`].
    pub parameters: BTreeMap<String, String>,
    /// Name of the server.
    pub server: String,
    /// Its backing.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// The verdict.
    pub verdict: Verdict,
    /// Name of the figure that decides the verdict.
    pub figure: String,
    /// That figure with this backing divided by the one with base, within blocks: the geometric mean over the
    /// backings of the other servers, with a 95 % interval; inverted if higher is better, so that below 1 is always
    /// better. Null without enough blocks.
    pub ratio: Option<Ratio>,
    /// Smallest difference, as a share, that this number of blocks with this noise would detect four times out of
    /// five; null with too few blocks.
    #[serde(rename = "smallest_difference_ratio")]
    pub smallest_difference: Option<f64>,
    /// Number of blocks in which all rounds of this effect count.
    pub blocks: usize,
    /// In words: the cause of a fallback, why no round ran, or the basis of the verdict.
    #[serde(rename = "detail")]
    pub reason: Option<String>,
    /// Actions after this verdict.
    pub actions: Vec<Action>,
    /// The effect on all figures, by their names; figures without a ratio are absent.
    pub figures: BTreeMap<String, Ratio>,
    /// How the effect depends on the backings of the servers that start after this one.
    pub interactions: Vec<Interaction>,
}

/// How an effect depends on the backing of another server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interaction {
    /// Name of the other server.
    pub server: String,
    /// Its backing.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// The ratio of the effect while the other server is on this backing, divided by the ratio while it is on base,
    /// with a 95 % interval. If it contains 1, no dependence is shown. Null without enough blocks.
    pub ratio: Option<Ratio>,
}
