//! The result of `bench pretouch`: measurements, model and predictions.

use hugewise_linux::{
    hugepages::backing::Backing,
    reading::Reading,
    units::{Bytes, PageSize},
};
use hugewise_measure::{
    comparison::Machine,
    pretouch::{
        Case, Implementation, PretouchRow,
        bench::Table,
        costs::{Costs, Gain},
        model::{self, Measured, Model},
        prediction::{Check, Prediction},
        ratios::{self, ChunkAdvice, EngineSpeed},
    },
};
use schemars::JsonSchema;
use serde::Serialize;

/// Result of `hugewise bench pretouch`, schema `hugewise.pretouch/2`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PretouchReport {
    pub(super) schema: &'static str,
    /// Version of hugewise.
    pub version: &'static str,
    /// The machine on which it was measured.
    pub machine: Machine,
    /// The measurements.
    #[serde(flatten)]
    pub table: Table,
    /// Speed of hugewise relative to the other methods, on the same memory.
    pub against: Vec<EngineSpeed>,
    /// Recommended values of `PreTouchParallelChunkSize`; empty if no chunk sizes were measured.
    pub advice: Vec<ChunkAdvice>,
    /// The model used for predictions.
    pub model: Reading<Model>,
    /// Speedups by more threads.
    pub gains: Vec<Gain>,
    /// Costs per byte and per base page.
    pub costs: Reading<Costs>,
    /// Predictions for the sizes of `--predict`.
    pub predictions: Vec<CasePrediction>,
    /// Prediction and measurement of the size that `--verify` keeps out of the model.
    pub checks: Vec<Check>,
    /// Settings that were changed during the experiment and restored.
    pub changes: Vec<String>,
}

/// A case, and its prediction.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CasePrediction {
    #[serde(flatten)]
    pub case: Case,
    pub prediction: Reading<Prediction>,
}

impl PretouchReport {
    /// `predicted_sizes` are predicted for each measured backing with `predicted_threads`, or with the
    /// measured numbers of threads if it is empty.
    pub fn new(
        table: Table,
        predicted_sizes: &[Bytes],
        predicted_threads: &[usize],
        machine: Machine,
        base: PageSize,
        changes: Vec<String>,
    ) -> PretouchReport {
        let fitted_variant = table.design.fitted_variant();
        let fitted = table.rows.iter().filter(|row| !row.held_out && row.way == fitted_variant);
        let model = Reading::from(model::fit(&fitted.flat_map(measured).collect::<Vec<_>>()));
        let known = model.known();
        let threads = if predicted_threads.is_empty() { &table.design.threads } else { predicted_threads };
        let costs = known
            .and_then(|model| model.costs(base.bytes()))
            .ok_or("base and huge pages were not measured with the same number of threads");
        PretouchReport {
            schema: "hugewise.pretouch/2",
            version: env!("CARGO_PKG_VERSION"),
            machine,
            against: ratios::against(&table.rows),
            advice: ratios::advice(&table.rows, &table.jvms),
            gains: known.map(Model::gains).unwrap_or_default(),
            costs: costs.into(),
            predictions: known
                .map(|model| predictions(model, predicted_sizes, threads, &table.design.backings))
                .unwrap_or_default(),
            checks: known.map(|model| checks(model, &table.rows)).unwrap_or_default(),
            model,
            changes,
            table,
        }
    }
}

fn measured(row: &PretouchRow) -> impl Iterator<Item = Measured> {
    let Case { bytes, backing, threads } = row.case;
    row.counted().map(move |sample| Measured { backing, threads, bytes, seconds: sample.seconds })
}

fn predictions(
    model: &Model,
    sizes: &[Bytes],
    threads: &[usize],
    backings: &[Backing],
) -> Vec<CasePrediction> {
    let mut predictions = Vec::new();
    for &bytes in sizes {
        for &backing in backings {
            for &threads in threads {
                predictions.push(CasePrediction {
                    case: Case { bytes, backing, threads },
                    prediction: model.predict(bytes, backing, threads).into(),
                });
            }
        }
    }
    predictions
}

fn checks(model: &Model, rows: &[PretouchRow]) -> Vec<Check> {
    let held_out = rows.iter().filter(|row| row.held_out && row.way.by == Implementation::Engine);
    let checks = held_out.filter_map(|row| {
        let case = row.case;
        let prediction = model.predict(case.bytes, case.backing, case.threads).ok()?;
        Check::of(prediction, row.counted().map(|sample| sample.seconds).collect())
    });
    checks.collect()
}
