//! Predicts the time of a transition, from the time of the same calls on memory of this program.

use std::time::{Duration, Instant};

use hugewise_linux::{
    hugepages::base_page,
    reading::Reading,
    root::Root,
    sys::{
        memory::Mapping,
        pidfd::{self, Adviser},
    },
    units::{Bytes, PageSize},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::host::LiveHost;
use crate::{commands::collapse::candidates::RegionSelection, output::terminal::plain};

/// What `compare --live --dry-run --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LivePrediction {
    schema: &'static str,
    /// Process ID.
    pub pid: u32,
    /// `comm`: the name of the process, at most 15 bytes.
    pub name: String,
    /// Regions that change their pages.
    pub region: RegionSelection,
    /// Size of a huge page, in bytes.
    #[serde(rename = "page_size_bytes")]
    pub size: PageSize,
    /// Number of huge pages that change.
    pub pages: u64,
    /// Predicted time of a transition to huge pages.
    pub to_huge_seconds: Reading<f64>,
    /// Predicted time of a transition to base pages.
    pub to_base_seconds: Reading<f64>,
    /// A longer transition ends the comparison.
    pub max_transition_seconds: f64,
    /// Why the comparison is not possible now; null if it is.
    pub detail: Option<String>,
}

impl LivePrediction {
    pub fn new(
        host: &LiveHost<'_>,
        region: RegionSelection,
        prediction: &Reading<Transitions>,
        limit: Duration,
    ) -> LivePrediction {
        let seconds = |of: fn(&Transitions) -> Duration| match prediction {
            Reading::Known(transitions) => Reading::Known(of(transitions).as_secs_f64()),
            Reading::Unknown { unknown } => Reading::Unknown { unknown: unknown.clone() },
        };
        LivePrediction {
            schema: "hugewise.live-prediction/2",
            pid: host.process.pid,
            name: plain(&host.process.name),
            region,
            size: host.size(),
            pages: host.pages() as u64,
            to_huge_seconds: seconds(|transitions| transitions.to_huge),
            to_base_seconds: seconds(|transitions| transitions.to_base),
            max_transition_seconds: limit.as_secs_f64(),
            detail: host.refused.clone(),
        }
    }
}

/// Huge pages that are moved for the prediction.
const PAGES: u64 = 16;

/// Predicted times of the transitions; they do not include pauses, and the cost of a busy process.
#[derive(Clone, Copy, Debug)]
pub struct Transitions {
    pub to_huge: Duration,
    pub to_base: Duration,
}

/// Predicts the transitions of `pages` huge pages.
pub fn transitions(root: &Root, size: PageSize, pages: usize) -> Reading<Transitions> {
    measure(root, size)
        .map(|of_page| {
            let pages = u32::try_from(pages).unwrap_or(u32::MAX);
            Transitions { to_huge: of_page.to_huge * pages, to_base: of_page.to_base * pages }
        })
        .into()
}

/// The times of one huge page.
fn measure(root: &Root, size: PageSize) -> std::io::Result<Transitions> {
    let page = size.bytes().0;
    let base =
        base_page::read(root).into_result().map_err(|reason| std::io::Error::other(reason.to_string()))?;
    let mut memory = Mapping::anonymous(Bytes((PAGES + 1) * page))?;
    memory.bytes_mut().iter_mut().step_by(base.bytes().0 as usize).for_each(|byte| *byte = 1);
    let adviser = Adviser::of(pidfd::open(std::process::id())?);
    let first = memory.address().next_multiple_of(page);
    let timed = |call: &dyn Fn(u64) -> std::io::Result<()>| -> std::io::Result<Duration> {
        let begin = Instant::now();
        (0..PAGES).try_for_each(|n| call(first + n * page))?;
        Ok(begin.elapsed() / PAGES as u32)
    };
    let to_huge = timed(&|start| adviser.collapse(&(start..start + page)))?;
    let to_base = timed(&|start| adviser.split(start, base))?;
    Ok(Transitions { to_huge, to_base })
}
