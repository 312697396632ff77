//! What the model says of costs: of a page, of a byte, and of one more thread.

use hugewise_linux::{hugepages::backing::Backing, units::Bytes};
use schemars::JsonSchema;
use serde::Serialize;

use super::model::{GIB, Line, Model, Residual};

/// Another thread that adds less than this share of speed adds none.
const LEAST_GAIN: f64 = 0.05;

/// What more threads brought.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Gain {
    /// The backing.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// The smaller number of threads.
    pub from_threads: usize,
    /// The larger number of threads.
    pub threads: usize,
    /// How much faster they are.
    pub speedup: f64,
    /// Bytes per second of the larger number.
    pub bytes_per_second: f64,
    /// Is it beyond noise that more threads bring nothing, so that something else limits: the memory, or the
    /// kernel's locks?
    pub at_limit: bool,
}

/// What one thread pays for, told apart by page sizes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Costs {
    /// The number of threads that this was told from.
    pub threads: usize,
    /// What each byte costs, zeroing above all, in seconds for a GiB.
    pub seconds_per_gib: f64,
    /// What a base page costs beside its bytes, in nanoseconds; below zero is shown as it is.
    pub nanoseconds_per_base_page: f64,
}

impl Model {
    /// What threads add, for each backing that was measured with several numbers of them.
    #[must_use]
    pub fn gains(&self) -> Vec<Gain> {
        let pairs = self.lines.windows(2).filter(|pair| pair[0].backing == pair[1].backing);
        let gains = pairs.map(|pair| {
            let speedup = pair[0].seconds_per_gib / pair[1].seconds_per_gib;
            let most = speedup * (2.0 * self.deviation_of_ratio(&pair[0], &pair[1])).exp();
            Gain {
                backing: pair[1].backing,
                from_threads: pair[0].threads,
                threads: pair[1].threads,
                speedup,
                bytes_per_second: GIB / pair[1].seconds_per_gib,
                at_limit: most < 1.0 + LEAST_GAIN,
            }
        });
        gains.collect()
    }

    /// Standard deviation of the logarithm of the ratio of two lines.
    fn deviation_of_ratio(&self, one: &Line, other: &Line) -> f64 {
        let of_line = |line: &Line| {
            let same =
                |residual: &&Residual| (residual.backing, residual.threads) == (line.backing, line.threads);
            self.spread.of_means / self.residuals.iter().filter(same).count().max(1) as f64
        };
        (of_line(one) + of_line(other)).sqrt()
    }

    /// The cost of a page and of a byte; nothing unless base pages and huge ones were measured with the
    /// same number of threads.
    ///
    /// A huge page's own cost is counted among its bytes: beside zeroing 2 MiB it does not show. What base
    /// pages cost beyond that is the cost of the pages. Taken is the backing with the cheapest bytes.
    #[must_use]
    pub fn costs(&self, base_page: Bytes) -> Option<Costs> {
        let threads = self.lines.iter().map(|line| line.threads).min()?;
        let rate = |wanted: &dyn Fn(Backing) -> bool| {
            let lines = self.lines.iter().filter(|line| line.threads == threads && wanted(line.backing));
            lines.map(|line| line.seconds_per_gib).min_by(f64::total_cmp)
        };
        let base = rate(&|backing| backing == Backing::Base)?;
        let huge = rate(&|backing| backing != Backing::Base)?;
        Some(Costs {
            threads,
            seconds_per_gib: huge,
            nanoseconds_per_base_page: (base - huge) * 1e9 * base_page.0 as f64 / GIB,
        })
    }
}
