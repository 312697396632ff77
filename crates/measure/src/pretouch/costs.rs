//! The costs that follow from the model: of a page, of a byte, and the gain of more threads.

use hugewise_linux::{hugepages::backing::Backing, units::Bytes};
use schemars::JsonSchema;
use serde::Serialize;

use super::model::{GIB, Line, Model, Residual};

/// Least speed-up, minus 1, that counts as a gain of more threads.
const MIN_GAIN: f64 = 0.05;

/// Gain of more threads.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Gain {
    /// The backing.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// The smaller number of threads.
    pub from_threads: usize,
    /// The larger number of threads.
    pub threads: usize,
    /// Time with `from_threads`, divided by the time with `threads`.
    pub speedup: f64,
    /// Throughput with `threads`, in bytes per second.
    pub bytes_per_second: f64,
    /// Whether the gain is certainly below 5 %, so that memory bandwidth or kernel locks limit.
    pub at_limit: bool,
}

/// Costs of one thread, split into pages and bytes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Costs {
    /// Number of threads of the lines that the costs were derived from.
    pub threads: usize,
    /// Cost of the bytes, mainly zeroing, in seconds per GiB.
    pub seconds_per_gib: f64,
    /// Cost of a base page in addition to its bytes, in seconds; noise can make it negative.
    pub seconds_per_base_page: f64,
}

impl Model {
    /// Gains of more threads, for each backing that was measured with several numbers of threads.
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
                at_limit: most < 1.0 + MIN_GAIN,
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

    /// The cost of a page and of a byte; `None` unless base pages and huge pages were measured with the same
    /// number of threads.
    ///
    /// The cost of a huge page itself counts as cost of its bytes, as it is negligible beside zeroing 2 MiB.
    /// The additional cost of base pages is the cost of the pages. The backing with the cheapest bytes is
    /// used.
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
            seconds_per_base_page: (base - huge) * base_page.0 as f64 / GIB,
        })
    }
}
