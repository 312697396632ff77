//! `hugewise compare --live`: a running process on base and on huge pages in turns.

mod figures;
pub mod host;
pub mod predict;
pub mod source;
mod values;
mod words;

use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use hugewise_jvm::regions::is_hotspot;
use hugewise_linux::{
    hugepages::backing::Backing, interrupt::Interrupt, json, proc::process::Process, root::Root,
    sys::aside::limit_readings,
};
use hugewise_measure::{
    analysis,
    comparison::{
        Case, Comparison, Design,
        live::{Ending, Live},
    },
    experiment::{Progress, describe_machine},
    live::{self, LiveProcess, LiveSettings, Quantity},
};

use self::{
    host::{Leave, LiveHost, Moving},
    predict::LivePrediction,
    source::{MetricSource, Url},
};
use super::{Compare, seconds, server::words as words_of};
use crate::{
    commands::collapse::candidates::RegionSelection,
    machine,
    output::{
        progress::Bar,
        standard_error,
        standard_output::{print, print_json},
        terminal::{Terminal, plain},
    },
    process_argument::ProcessArgument,
};

/// Default limit of a live comparison.
const DEFAULT_LIMIT: Duration = Duration::from_secs(300);

/// Options of a live comparison.
#[derive(Args)]
#[command(next_help_heading = "A running process")]
pub struct LiveOptions {
    /// Compare a running process with itself: its memory is on base pages and on huge pages in turns, in random
    /// order, without a restart. PID can be a unit (NAME.service), a container (its ID) or a control group (its path).
    /// Needs CAP_SYS_NICE
    #[arg(long, value_name = "PID",
        conflicts_with_all = ["command", "backing", "off_heap", "turns", "timeout", "jmh", "parameter_list",
        "floor", "fragmented", "bytes", "java", "no_java", "warm_up"])]
    pub live: Option<ProcessArgument>,
    /// Regions that change their pages [default: heap of a JVM, all of another program]
    #[arg(long, value_enum, value_name = "REGION", requires = "live")]
    region: Option<RegionSelection>,
    /// Length of a turn
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "5", requires = "live")]
    turn: Duration,
    /// End the comparison if it takes longer to move the memory
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "30", requires = "live")]
    max_transition: Duration,
    /// The pages of the process after the comparison
    #[arg(long, value_enum, value_name = "PAGES", default_value_t = Leave::Found, requires = "live")]
    leave: Leave,
    /// Run CMD twice per second; --metric finds the values in its output. Words are separated by blanks, which quotes
    /// keep; no shell is involved
    #[arg(long, value_name = "CMD", requires = "live", conflicts_with = "metric_url")]
    metric_command: Option<String>,
    /// Read this page twice per second; --metric finds the values in it
    #[arg(long, value_name = "URL", requires = "live")]
    metric_url: Option<Url>,
    /// Allow the kernel to reclaim and compact memory for huge pages: other programs may have to wait
    #[arg(long, requires = "live")]
    allow_reclaim: bool,
    /// Predict the transitions, without a change to the process
    #[arg(short = 'n', long, requires = "live")]
    dry_run: bool,
}

/// Runs the comparison of a process.
pub fn run(compare: &Compare, process: &ProcessArgument, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let options = &compare.live;
    let max_time = compare.max_time.unwrap_or(DEFAULT_LIMIT);
    limit_readings(max_time);
    let root = Root::live();
    let pid = process.process(&root)?;
    let command =
        options.metric_command.as_ref().map(|text| words_of(text, "--metric-command")).transpose()?;
    let source = MetricSource::new(command, options.metric_url.as_ref(), &compare.metric)?;
    let mut quantities = figures::quantities(&source)?;
    let has_metric = !source.metrics().is_empty();
    let interrupt = machine::install_signal_handlers()?;
    let region = match options.region {
        Some(region) => region,
        None if is_hotspot(&root, pid) => RegionSelection::Heap,
        None => RegionSelection::All,
    };
    let moving =
        Moving { region, allow_reclaim: options.allow_reclaim, max_transition: options.max_transition };
    let mut host = LiveHost::open(&root, pid, moving, source, Some(&interrupt))?;
    let name = format!("{pid} ({})", plain(&host.process.name));
    let prediction = predict::transitions(&root, host.size(), host.pages());
    if options.dry_run {
        let dry_run = LivePrediction::new(&host, region, &prediction, options.max_transition);
        match compare.json {
            true => print_json(&json::text(&dry_run)?)?,
            false => print(&words::dry_run(&dry_run))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(refused) = &host.refused {
        bail!("{refused}");
    }
    ensure!(
        host.pages() > 0,
        "{name} has no memory in this region that can be on huge pages: hugewise inspect {pid}"
    );
    let region =
        clap::ValueEnum::to_possible_value(&region).map_or_else(String::new, |it| it.get_name().to_owned());
    let mut settings = LiveSettings {
        turn: options.turn,
        max_time,
        pairs: compare.rounds,
        max_transition: options.max_transition,
        least_coverage: f64::from(compare.min_coverage) / 100.0,
    };
    let without =
        if has_metric { Vec::new() } else { figures::choose(&mut host, options.turn, &mut quantities) };
    // The choice took a turn of it.
    settings.max_time = settings.max_time.saturating_sub(host.now());
    let mut machine = machine::open_machine(&root, &format!("compare --live {pid}"), None)?;
    let mut comparison = comparison(compare, &root, &host, &quantities, &settings, &region);
    comparison.notes.extend(without);
    let memory = host.memory(&region);
    if let Err(reason) = machine.note_memory(memory.clone()) {
        comparison.notes.push(format!(
            "without a journal, a kill of this command leaves the process on the pages of that moment: {reason}"
        ));
    }
    let mut bar = Bar::of("pairs of turns");
    bar.announce(&words::announcement(&name, &prediction, &settings));
    let pairs = settings.pairs.unwrap_or(0);
    live::conduct(&mut host, &quantities, &settings, &mut comparison, &mut |done| {
        bar.run(done, pairs.max(done + 1), "");
    });
    drop(bar);
    let left = host.leave(options.leave);
    match &left {
        Ok(()) => machine.forget_memory(&memory)?,
        Err(error) => {
            let what = format!("the pages of process {name} could not be put back: {error:#}");
            standard_error::say(what);
        }
    }
    let is_left = left.is_ok() && !host.has_ended();
    let closed = machine::close(machine);
    analysis::analyse(&mut comparison);
    words::complete(&mut comparison, &host, is_left.then_some(options.leave));
    if comparison.rounds.is_empty() {
        closed?;
        return without_turns(&comparison, &interrupt);
    }
    compare.show(&comparison, terminal)?;
    closed?;
    let signal = machine::signal_number(&interrupt).map(|signal| ExitCode::from(128 + signal));
    Ok(signal.unwrap_or_else(|| compare.exit_code(&comparison)))
}

/// The exit status of a comparison that ended before its first turn was complete.
fn without_turns(comparison: &Comparison, interrupt: &Interrupt) -> anyhow::Result<ExitCode> {
    let live = comparison.live.as_ref().context("no live comparison")?;
    match (live.ending, machine::signal_number(interrupt)) {
        (Ending::Interrupted, Some(signal)) => {
            standard_error::say("interrupted before a turn was complete");
            Ok(ExitCode::from(128 + signal))
        }
        (Ending::ProcessEnded, _) => bail!("process {} ended before a turn was complete", live.pid),
        _ => bail!(
            "the comparison ended before a turn was complete: {}",
            live.detail.as_deref().unwrap_or("the time limit is too short")
        ),
    }
}

/// A comparison that has not begun.
fn comparison(
    compare: &Compare,
    root: &Root,
    host: &LiveHost<'_>,
    quantities: &[Quantity],
    settings: &LiveSettings,
    region: &str,
) -> Comparison {
    let Process { pid, name, command, .. } = &host.process;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let arms = if compare.aa { [Backing::Base; 2] } else { [Backing::Base, Backing::Thp] };
    Comparison {
        schema: "hugewise.compare/2".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix_seconds: now.as_secs(),
        machine: describe_machine(root),
        design: Design {
            arms: arms.map(Into::into).to_vec(),
            rounds: 0, // Counted at the end.
            warm_up: 0,
            seed: compare.seed.unwrap_or_else(|| u64::from(now.subsec_nanos())),
            aa: compare.aa,
            turns: false,
            fragmented: None,
        },
        cases: vec![Case {
            workload: format!("{name}, process {pid}"),
            embedded: false,
            command: command.clone(),
            servers: Vec::new(),
            driver: Vec::new(),
            parameters: BTreeMap::new(),
            figures: quantities.iter().map(|quantity| quantity.figure.clone()).collect(),
        }],
        left_out: Vec::new(),
        backings: Vec::new(),
        effects: Vec::new(),
        rounds: Vec::new(),
        live: Some(Live::new(*pid, region, settings.turn)),
        changes: Vec::new(),
        notes: Vec::new(),
    }
}
