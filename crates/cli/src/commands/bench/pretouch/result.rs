//! The result of `bench pretouch`: measurements, model and predictions.

use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    reading::Reading,
    units::Bytes,
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

/// Sizes and numbers of threads to predict, for each measured backing.
pub struct PredictionGrid {
    pub bytes: Vec<Bytes>,
    pub threads: Vec<usize>,
}

/// A case, and its prediction.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CasePrediction {
    #[serde(flatten)]
    pub case: Case,
    pub prediction: Reading<Prediction>,
}

impl PretouchReport {
    pub fn new(
        table: Table,
        question: &PredictionGrid,
        machine: Machine,
        sizes: &PageSizes,
        changes: Vec<String>,
    ) -> PretouchReport {
        let fitted_variant = table.design.fitted_variant();
        let fitted: Vec<Measured> = table
            .rows
            .iter()
            .filter(|row| !row.held_out && row.way == fitted_variant)
            .flat_map(measured)
            .collect();
        let model = Reading::from(model::fit(&fitted));
        let predictions = match model.known() {
            Some(model) => predictions(model, question, &table.design.backings),
            None => Vec::new(),
        };
        let checks = model.known().map(|model| checks(model, &table.rows)).unwrap_or_default();
        let costs = model.known().and_then(|model| model.costs(sizes.base.bytes()));
        PretouchReport {
            schema: "hugewise.pretouch/2",
            version: env!("CARGO_PKG_VERSION"),
            machine,
            against: ratios::against(&table.rows),
            advice: ratios::advice(&table.rows, &table.jvms),
            gains: model.known().map(Model::gains).unwrap_or_default(),
            costs: costs.map_or_else(
                || Reading::unknown("base and huge pages were not measured with the same number of threads"),
                Reading::Known,
            ),
            model,
            predictions,
            checks,
            changes,
            table,
        }
    }
}

fn measured(row: &PretouchRow) -> Vec<Measured> {
    let one = |seconds: f64| Measured {
        backing: row.case.backing,
        threads: row.case.threads,
        bytes: row.case.bytes,
        seconds,
    };
    row.counted().map(|sample| one(sample.seconds)).collect()
}

fn predictions(model: &Model, question: &PredictionGrid, backings: &[Backing]) -> Vec<CasePrediction> {
    let mut predictions = Vec::new();
    for &bytes in &question.bytes {
        for &backing in backings {
            for &threads in &question.threads {
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
