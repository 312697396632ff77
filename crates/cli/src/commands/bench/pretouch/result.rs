//! The result of `bench pretouch`: what was measured, and what follows from it.

use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    reading::Reading,
    units::Bytes,
};
use hugewise_measure::{
    comparison::Machine,
    pretouch::{
        By, Row,
        bench::Table,
        costs::{Costs, Gain},
        model::{self, Measured, Model},
        prediction::{Check, Prediction},
        ratios::{self, Advice, Against},
    },
};
use schemars::JsonSchema;
use serde::Serialize;

/// What `bench pretouch` found, schema `hugewise.pretouch/1`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    pub(super) schema: &'static str,
    /// The version of the tool.
    pub version: &'static str,
    /// The machine it ran on.
    pub machine: Machine,
    /// What was measured.
    #[serde(flatten)]
    pub table: Table,
    /// The engine beside everybody else, on the same memory.
    pub against: Vec<Against>,
    /// What to set `PreTouchParallelChunkSize` to, where chunks were tried.
    pub advice: Vec<Advice>,
    /// The model that predicts.
    pub model: Reading<Model>,
    /// What more threads brought.
    pub gains: Vec<Gain>,
    /// The cost of a base page and of a byte.
    pub costs: Reading<Costs>,
    /// The answers to --predict.
    pub predictions: Vec<Reading<Prediction>>,
    /// The held out size, predicted and measured.
    pub checks: Vec<Check>,
    /// What was changed on the machine for the time of the experiment, and put back.
    pub changes: Vec<String>,
}

/// What is to be predicted, for every backing that was measured.
pub struct Question {
    /// Sizes.
    pub bytes: Vec<Bytes>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
}

impl Report {
    /// Draws the conclusions.
    pub fn new(
        table: Table,
        question: &Question,
        machine: Machine,
        sizes: &PageSizes,
        changes: Vec<String>,
    ) -> Report {
        let judged = table.design.judged();
        let fitted: Vec<Measured> =
            table.rows.iter().filter(|row| !row.held_out && row.way == judged).flat_map(measured).collect();
        let model = Reading::from(model::fit(&fitted));
        let predictions = match model.known() {
            Some(model) => predictions(model, question, &table.design.backings),
            None => Vec::new(),
        };
        let checks = model.known().map(|model| checks(model, &table.rows)).unwrap_or_default();
        let costs = model.known().and_then(|model| model.costs(sizes.base.bytes()));
        Report {
            schema: "hugewise.pretouch/1",
            version: env!("CARGO_PKG_VERSION"),
            machine,
            against: ratios::against(&table.rows),
            advice: ratios::advice(&table.rows, &table.jvms),
            gains: model.known().map(Model::gains).unwrap_or_default(),
            costs: costs.map_or_else(
                || Reading::unknown("base pages and huge ones must be measured with as many threads"),
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

fn measured(row: &Row) -> Vec<Measured> {
    let one = |seconds: f64| Measured {
        backing: row.case.backing,
        threads: row.case.threads,
        bytes: row.case.bytes,
        seconds,
    };
    row.counted().map(|sample| one(sample.seconds)).collect()
}

fn predictions(model: &Model, question: &Question, backings: &[Backing]) -> Vec<Reading<Prediction>> {
    let mut predictions = Vec::new();
    for &bytes in &question.bytes {
        for &backing in backings {
            for &threads in &question.threads {
                predictions.push(Reading::from(model.predict(bytes, backing, threads)));
            }
        }
    }
    predictions
}

fn checks(model: &Model, rows: &[Row]) -> Vec<Check> {
    let held_out = rows.iter().filter(|row| row.held_out && row.way.by == By::Engine);
    let checks = held_out.filter_map(|row| {
        let case = row.case;
        let prediction = model.predict(case.bytes, case.backing, case.threads).ok()?;
        Check::of(prediction, row.counted().map(|sample| sample.seconds).collect())
    });
    checks.collect()
}
