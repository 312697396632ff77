//! The figures of a live comparison, and which of them decides the verdict.

use std::time::Duration;

use anyhow::ensure;
use hugewise_linux::reading::Reading;
use hugewise_measure::{
    comparison::{Better, Figure},
    live::{LiveProcess, MIN_EVENTS, Quantity, Value, rates},
};

use super::{
    host::LiveHost,
    source::MetricSource,
    values::ProcessValue::{self, *},
};

/// CPU time for each GiB that a JVM allocates.
pub const CPU_PER_ALLOCATED: &str = "cpu_per_allocated_gib";
pub const CYCLES_PER_INSTRUCTION: &str = "cycles_per_instruction";

const RATES: [(&str, &str, ProcessValue); 7] = [
    ("cpu", "s/s", Cpu),
    ("sys", "s/s", Sys),
    ("minor_faults_per_second", "", MinorFaults),
    ("major_faults_per_second", "", MajorFaults),
    ("memory_pressure_share", "", Pressure),
    ("gc_share", "", Gc),
    ("pause_share", "", Safepoints),
];
/// Dividend, divisor, and the events of which there must be enough.
const QUOTIENTS: [(&str, &str, ProcessValue, ProcessValue, Option<ProcessValue>); 3] = [
    (CPU_PER_ALLOCATED, "s", Cpu, AllocatedGib, Some(YoungCollections)),
    (CYCLES_PER_INSTRUCTION, "", Cycles, Instructions, None),
    ("page_walk_cycles_share", "", PageWalkCycles, Cycles, None),
];

/// The metrics of the user, and the figures of the process. Fails if a metric has no value now.
pub fn quantities(source: &MetricSource) -> anyhow::Result<Vec<Quantity>> {
    let text = source.text()?;
    let mut all = Vec::new();
    for (index, metric) in source.metrics().iter().enumerate() {
        let figure = metric.figure();
        let value = if metric.is_counter(&text) { Value::Rate(index) } else { Value::Mean(index) };
        ensure!(
            metric.find(&text).map_err(anyhow::Error::msg)?.is_some(),
            "--metric {} is a figure of whole runs; without --metric, a figure of the process decides",
            figure.name
        );
        all.push(Quantity { figure, value });
    }
    let at = |value: ProcessValue| source.metrics().len() + value as usize;
    let quantity = |name: &str, unit: &str, value| Quantity {
        figure: Figure { name: name.to_owned(), unit: unit.to_owned(), better: Better::Lower },
        value,
    };
    all.extend(RATES.map(|(name, unit, value)| quantity(name, unit, Value::Rate(at(value)))));
    all.extend(QUOTIENTS.map(|(name, unit, dividend, divisor, events)| {
        let (dividend, divisor, events) = (at(dividend), at(divisor), events.map(at));
        quantity(name, unit, Value::Quotient { dividend, divisor, events })
    }));
    Ok(all)
}

/// Puts first the figure of the process that decides: of those that count its work, the first
/// that has a value over a turn, or else CPU time. Returns why the figures before it have none.
pub fn choose(host: &mut LiveHost<'_>, turn: Duration, quantities: &mut [Quantity]) -> Vec<String> {
    let before = host.sample();
    host.wait(turn);
    let samples = [before, host.sample()];
    let known = rates(&samples, quantities);
    let mut notes = Vec::new();
    for (name, reason) in [
        (CPU_PER_ALLOCATED, without_allocation(host, turn)),
        (CYCLES_PER_INSTRUCTION, without_counters(host)),
    ] {
        let position = quantities.iter().position(|quantity| quantity.figure.name == name);
        if let Some(position) = position.filter(|_| known.contains_key(name)) {
            quantities[..=position].rotate_right(1);
            break;
        }
        notes.extend(reason);
    }
    notes
}

/// Why CPU time for each byte allocated is unknown; `None` of a program other than a JVM.
fn without_allocation(host: &LiveHost<'_>, turn: Duration) -> Option<String> {
    let why = match (&host.values.counters, host.values.allocation.young_collections()) {
        (Err(reason), _) => reason.to_string(),
        (Ok(_), None) => "its collector has no Eden, unlike Serial, Parallel and G1".to_owned(),
        (Ok(_), Some(_)) => format!(
            "a turn needs {MIN_EVENTS} young collections, and there were fewer in {} s; a longer --turn has more",
            turn.as_secs_f64()
        ),
    };
    host.is_jvm.then(|| format!("no CPU time for each byte that the JVM allocates: {why}"))
}

fn without_counters(host: &LiveHost<'_>) -> Option<String> {
    match &host.values.hardware.cycles {
        Reading::Unknown { unknown } => Some(format!("no hardware counters of the process: {unknown}")),
        Reading::Known(_) => None,
    }
}
