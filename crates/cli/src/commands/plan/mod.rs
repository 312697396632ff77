//! `hugewise plan`: what a launch line needs of huge pages, to the page.

pub mod formats;
pub mod text;

use std::{fs, process::ExitCode, sync::OnceLock};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum, builder::PossibleValue};
use hugewise_jvm::launch::LaunchLine;
use hugewise_linux::{
    facts::Facts,
    hugepages::{backing::Backing, contiguity::Scan, page_sizes::PageSizes},
    root::Root,
};
use hugewise_plan::{
    plan::{Obtainable, Outcome, Plan as Planned},
    planner::{self, OffHeapWanted, Wanted},
};

use self::formats::Format;
use crate::{
    NEGATIVE,
    output::terminal::{Terminal, print},
};

/// What a JVM needs of huge pages, to the page, and what happens if it is started as things stand
///
/// The very java of the launch line is rehearsed: started with the line's own options and -version, with
/// every request for huge pages seen and answered as pools of the right size would. Nothing of the
/// program is started, no page of the pools is taken, and nothing is changed.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugewise plan -- java -Xmx4g -jar app.jar
  hugewise plan --backing hugetlb:1GiB -- java -Xmx32g -jar app.jar
  hugewise plan --instances 3 -- env JAVA_TOOL_OPTIONS=-Xmx2g taskset -c 0-3 java @app.args Main
  hugewise plan --backing thp -- java -XX:+UseZGC -Xmx4g Main
  hugewise plan --off-heap 2GiB -- java -Xmx4g -jar cache.jar
  hugewise plan --format kubernetes -- java -Xmx4g -jar app.jar > pod.yaml
  hugewise plan --json -- java -Xmx4g -jar app.jar > plan.json; sudo hugewise apply --plan plan.json

Exit status: 0 planned; 1 planned, and there is not enough memory for it, or the line would exit or be
killed if it were started as things stand; 2 wrong usage, a line that no JVM starts with, no JVM that
could be asked, or a format that cannot say what is needed.")]
pub struct Plan {
    #[command(flatten)]
    wishes: Wishes,
    /// Write the plan as text, JSON (schema hugewise.plan/1), or the configuration of one tool
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Shape::Text)]
    format: Shape,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// The launch line
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// What is wished of a plan, beside the launch line.
#[derive(Args)]
pub struct Wishes {
    /// The backing to plan for: hugetlb[:SIZE], shm[:SIZE] or thp [default: what the line asks for, or
    /// hugetlb]
    #[arg(short, long)]
    backing: Option<Backing>,
    /// So many of these JVMs run at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    instances: u32,
    /// Memory outside of the heap that is to be on huge pages too: SIZE, or 'direct' for what the JVM
    /// allows its direct buffers
    #[arg(long, value_name = "SIZE|direct", value_parser = off_heap)]
    off_heap: Option<OffHeapWanted>,
    /// The NUMA node of the pool [default: that of numactl --membind in the line, or all]
    #[arg(long, value_name = "N")]
    node: Option<u32>,
}

/// What a plan can be written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Text,
    Json,
    File(Format),
}

impl ValueEnum for Shape {
    fn value_variants<'a>() -> &'a [Shape] {
        static SHAPES: OnceLock<Vec<Shape>> = OnceLock::new();
        SHAPES.get_or_init(|| {
            let files = Format::value_variants().iter().copied().map(Shape::File);
            [Shape::Text, Shape::Json].into_iter().chain(files).collect()
        })
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Shape::Text => Some(PossibleValue::new("text").help("For people")),
            Shape::Json => {
                Some(PossibleValue::new("json").help("Every figure, for a program or 'hugewise apply'"))
            }
            Shape::File(format) => format.to_possible_value(),
        }
    }
}

fn off_heap(text: &str) -> Result<OffHeapWanted, String> {
    match text {
        "direct" => Ok(OffHeapWanted::Direct),
        size => size.parse().map(OffHeapWanted::Bytes).map_err(|error| format!("{error}")),
    }
}

/// Runs the command.
pub fn run(plan: &Plan, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let planned = make(&plan.wishes, &plan.command)?;
    let shape = if plan.json { Shape::Json } else { plan.format };
    let shown = match shape {
        Shape::Text => text::text(&planned, terminal)?,
        Shape::Json => serde_json::to_string_pretty(&planned)? + "\n",
        Shape::File(format) => match formats::render(&planned, format) {
            Ok(file) => file,
            // An answer, too; but no file is written.
            Err(said) if said.instead.is_none() => {
                eprintln!("hugewise: {said}");
                String::new()
            }
            Err(error) => return Err(error.into()),
        },
    };
    print(&shown)?;
    Ok(if is_negative(&planned) { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS })
}

/// Makes a plan for a launch line on this machine.
pub fn make(wishes: &Wishes, command: &[String]) -> anyhow::Result<Planned> {
    if wishes.backing == Some(Backing::Base) {
        bail!("base pages need no plan: every machine has them; plan for hugetlb, shm or thp");
    }
    let root = Root::live();
    let sizes = PageSizes::read(&root).map_err(anyhow::Error::msg)?;
    let line = LaunchLine::of_java(command, &|file| fs::read_to_string(file))
        .context("a plan is made for a java launch line")?;
    let facts = Facts::gather(&root, Scan::IfQuick);
    let wanted = Wanted {
        backing: wishes.backing,
        instances: wishes.instances,
        off_heap: wishes.off_heap,
        node: wishes.node,
    };
    Ok(planner::plan(command, &line, &wanted, &facts, &sizes)?)
}

fn is_negative(plan: &Planned) -> bool {
    let out_of_reach =
        |obtainable| matches!(obtainable, Obtainable::NotEnoughMemory | Obtainable::NotContiguous);
    plan.pools.iter().any(|pool| out_of_reach(pool.obtainable))
        || matches!(plan.verdict.outcome, Outcome::Exits | Outcome::DiesOfSigbus)
}
