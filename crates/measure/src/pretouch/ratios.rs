//! Ratios between the ways of one run, and the best chunk for each JVM.

use std::collections::BTreeMap;

use hugewise_linux::units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Case, Implementation, PretouchRow, hotspot::Jvm};
use crate::{
    statistics::{INTERVAL_CONFIDENCE, PairedRatio, Ratio, median},
    verdict::FALSE_CLAIM_PROBABILITY,
};

/// Least share of the time that a recommended chunk must save.
pub const MIN_SAVING: f64 = 0.05;

/// Speed of the engine relative to another implementation, on the same memory in the same run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct EngineSpeed {
    /// The memory and the number of threads.
    #[serde(flatten)]
    pub case: Case,
    /// The other implementation, with its default chunk.
    pub other: Implementation,
    /// Time of the other, divided by the time of the engine: above 1 the engine is faster. Geometric mean
    /// over the repetitions with its 95 % interval; null with fewer than 3 repetitions.
    pub speed: Option<Ratio>,
}

/// Recommendation for a JVM's `PreTouchParallelChunkSize`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ChunkAdvice {
    /// The memory and the number of threads.
    #[serde(flatten)]
    pub case: Case,
    /// Index into the JVMs.
    pub jvm: usize,
    /// The JVM's default chunk, in bytes; null if the JVM does not report it.
    #[serde(rename = "default_chunk_bytes")]
    pub default_chunk: Option<Bytes>,
    /// The fastest of the tried chunks, in bytes.
    #[serde(rename = "fastest_chunk_bytes")]
    pub fastest: Option<Bytes>,
    /// Time with `fastest`, divided by the time with the default chunk, with an interval of at least 99 %;
    /// null with fewer than 3 repetitions.
    pub ratio: Option<Ratio>,
    /// Whether `fastest` is certainly faster, and by 5 % or more.
    pub worth_setting: bool,
    /// Whether no tried chunk can save 5 %, given the interval.
    pub default_is_as_good: bool,
    /// Number of chunks tried, without the default.
    pub tried: usize,
}

/// The engine compared with all other implementations, each with its default chunk.
pub fn against(rows: &[PretouchRow]) -> Vec<EngineSpeed> {
    let undecided = |row: &&PretouchRow| row.way.chunk.is_none() && !row.held_out;
    let engines = rows.iter().filter(undecided).filter(|row| row.way.by == Implementation::Engine);
    let pairs = engines.flat_map(|engine| {
        let others = rows.iter().filter(undecided);
        let others = others.filter(|row| row.case == engine.case && row.way.by != Implementation::Engine);
        others.map(move |other| EngineSpeed {
            case: engine.case,
            other: other.way.by,
            speed: paired(engine, other).and_then(|pairs| pairs.ratio(INTERVAL_CONFIDENCE)),
        })
    });
    pairs.collect()
}

/// Times of `value` divided by those of `reference`, paired by repetition.
fn paired(reference: &PretouchRow, value: &PretouchRow) -> Option<PairedRatio> {
    let of_reference: BTreeMap<usize, f64> =
        reference.counted().map(|sample| (sample.repetition, sample.seconds)).collect();
    let pairs =
        value.counted().filter_map(|sample| Some((*of_reference.get(&sample.repetition)?, sample.seconds)));
    PairedRatio::of(&pairs.collect::<Vec<_>>())
}

/// The recommended chunk for each JVM on the largest memory for which chunks were tried, where it matters
/// most.
pub fn advice(rows: &[PretouchRow], jvms: &[Jvm]) -> Vec<ChunkAdvice> {
    let of_jvms = || rows.iter().filter(|row| matches!(row.way.by, Implementation::Jvm(_)));
    let largest = of_jvms().map(|row| row.case.bytes).max();
    let defaults = of_jvms().filter(|row| row.way.chunk.is_none() && Some(row.case.bytes) == largest);
    let advice = defaults.filter_map(|default| {
        let Implementation::Jvm(jvm) = default.way.by else { return None };
        let default_chunk = jvms.get(jvm).and_then(|jvm| jvm.default_chunk);
        let tried: Vec<&PretouchRow> = rows
            .iter()
            .filter(|row| row.case == default.case && row.way.by == default.way.by)
            .filter(|row| row.way.chunk.is_some_and(|chunk| Some(chunk) != default_chunk))
            .collect();
        (!tried.is_empty()).then(|| judge(default, jvm, default_chunk, &tried))
    });
    advice.collect()
}

fn judge(
    default: &PretouchRow,
    jvm: usize,
    default_chunk: Option<Bytes>,
    tried: &[&PretouchRow],
) -> ChunkAdvice {
    let middle = |row: &PretouchRow| median(&row.counted().map(|sample| sample.seconds).collect::<Vec<_>>());
    let fastest = tried
        .iter()
        .filter_map(|row| Some((middle(row)?, *row)))
        .min_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, row)| row);
    let pairs = fastest.and_then(|row| paired(default, row));
    // The fastest of many can be fast by chance: a Bonferroni correction for the number of chunks.
    let confidence = 1.0 - FALSE_CLAIM_PROBABILITY / tried.len().max(1) as f64;
    let ratio = pairs.and_then(|pairs| pairs.ratio(confidence));
    let claimed = pairs.and_then(|pairs| pairs.claim(tried.len())).is_some();
    let clear = ratio.as_ref().is_some_and(|r| r.high < 1.0 && r.estimate <= 1.0 - MIN_SAVING);
    ChunkAdvice {
        case: default.case,
        jvm,
        default_chunk,
        fastest: fastest.and_then(|row| row.way.chunk),
        default_is_as_good: ratio.as_ref().is_some_and(|ratio| ratio.low > 1.0 - MIN_SAVING),
        worth_setting: claimed && clear,
        ratio,
        tried: tried.len(),
    }
}

#[cfg(test)]
mod tests {
    use hugewise_linux::{hugepages::backing::Backing, reading::Reading};

    use super::*;
    use crate::pretouch::{Sample, Variant};

    fn row(by: Implementation, chunk: Option<u64>, seconds: &[f64]) -> PretouchRow {
        let sample = |(repetition, seconds): (usize, &f64)| Sample {
            repetition,
            seconds: *seconds,
            release_seconds: Reading::Known(0.0),
            coverage: Reading::Known(1.0),
            fallbacks: Reading::Known(0),
            stalls: Reading::Known(0),
            threads: 2,
            chunk: None,
        };
        PretouchRow {
            case: Case { bytes: Bytes(1 << 30), backing: Backing::Thp, threads: 2 },
            way: Variant { by, chunk: chunk.map(Bytes) },
            held_out: false,
            samples: seconds.iter().enumerate().map(sample).collect(),
        }
    }

    fn jvm() -> Jvm {
        Jvm::named("java 25", Some(Bytes(4 << 20)))
    }

    #[test]
    fn a_flag_is_recommended_only_beyond_noise() {
        let default = row(Implementation::Jvm(0), None, &[1.00, 1.02, 0.99, 1.01, 1.00]);
        let same = row(Implementation::Jvm(0), Some(1 << 16), &[0.99, 1.01, 1.00, 1.00, 0.98]);
        let faster = row(Implementation::Jvm(0), Some(1 << 26), &[0.80, 0.82, 0.79, 0.81, 0.80]);
        let noisy = row(Implementation::Jvm(0), Some(1 << 26), &[0.50, 1.30, 0.60, 1.20, 0.70]);
        let verdict = |rows: &[PretouchRow]| {
            let advice = advice(rows, &[jvm()]);
            advice.first().map(|advice| (advice.fastest, advice.worth_setting))
        };
        assert_eq!(verdict(&[default.clone(), same.clone(), faster]), Some((Some(Bytes(1 << 26)), true)));
        assert_eq!(verdict(&[default.clone(), same]), Some((Some(Bytes(1 << 16)), false)));
        assert_eq!(verdict(&[default.clone(), noisy]), Some((Some(Bytes(1 << 26)), false)));
        assert_eq!(verdict(&[default]), None, "no chunk was tried");
    }

    #[test]
    fn runs_that_fell_back_are_in_no_ratio() {
        let engine = row(Implementation::Engine, None, &[1.0, 1.0, 1.0, 1.0]);
        let mut kernel = row(Implementation::Kernel, None, &[2.0, 2.0, 2.0, 9.0]);
        kernel.samples[3].coverage = Reading::Known(0.1);
        let against = against(&[engine, kernel]);
        let speed = against[0].speed.map(|ratio| ratio.estimate);
        assert!(speed.is_some_and(|speed| (speed - 2.0).abs() < 1e-9), "{speed:?}");
    }
}
