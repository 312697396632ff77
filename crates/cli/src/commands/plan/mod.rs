//! `hugewise plan`: the huge pages that the command line of a JVM or a database server needs.

mod architecture;
mod experiment;
pub mod formats;
mod running;
pub mod text;

use std::{
    env,
    path::{Path, PathBuf},
    process::{self, ExitCode},
    sync::OnceLock,
};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum, builder::PossibleValue};
use hugewise_changes::journal::{self, STATE_DIR};
use hugewise_databases::{
    mariadb::line::{self as mariadb_line, MariadbLine},
    postgres::line::{self, PostgresLine},
};
use hugewise_jvm::launch::{self, LaunchError, LaunchLine, read_option_file};
use hugewise_launch::launcher::Launcher;
use hugewise_linux::{
    cgroup::CgroupLimits,
    facts::Facts,
    hugepages::{backing::Backing, contiguity::Scan, page_sizes::PageSizes, pools::Pool, touch},
    json,
    proc::tree,
    reading::Reason,
    root::Root,
    units::Pages,
};
use hugewise_plan::{
    mariadb,
    plan::{Plan as Planned, PoolAvailability, StartOutcome},
    planner::{self, OffHeapRequest, PlanRequest},
    postgres,
    target::{self, TargetSizes, TargetSource},
};

use self::{formats::Format, running::RunningProgram};
use crate::{
    NEGATIVE, machine,
    output::{
        standard_error,
        standard_output::{print, print_json, print_styled},
        terminal::Terminal,
    },
    process_argument::ProcessArgument,
};

/// Plan the huge pages that a JVM or a database server needs, and predict the result of starting it now
///
/// Rehearses the start of a JVM: runs the java of COMMAND with its options and -version, and answers its requests
/// for huge pages: first as if the pools were large enough, then with the pools as they are. PostgreSQL is queried
/// with postgres -C, as the owner of the data folder. MariaDB is rehearsed like a JVM, with an empty data folder.
/// The program itself is not started, no page of the pools is used, and no setting is changed.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugewise plan -- java -Xmx4g -jar app.jar
  hugewise plan --backing hugetlb:1GiB -- java -Xmx32g -jar app.jar
  hugewise plan --instances 3 -- env JAVA_TOOL_OPTIONS=-Xmx2g taskset -c 0-3 java @app.args Main
  hugewise plan --backing thp -- java -XX:+UseZGC -Xmx4g Main
  hugewise plan --off-heap 2GiB -- java -Xmx4g -jar cache.jar
  sudo hugewise plan -- postgres -D /var/lib/postgresql/15/main
  sudo hugewise plan -- mariadbd --large-pages --innodb-buffer-pool-size=4G
  hugewise plan --pid 4711                                   a running program of this user, as behind a script
  hugewise plan --format kubernetes -- java -Xmx4g -jar app.jar > pod.yaml
  hugewise plan --target memory=64GiB,cpus=16 -- java -jar app.jar
                                                             for another machine or container of these sizes
  hugewise plan --root web7 -- java -Xmx4g -jar app.jar      for another machine, captured in web7
  hugewise plan --json -- java -Xmx4g -jar app.jar > plan.json; sudo hugewise apply --plan plan.json

Exit status: 0 success; 1 too little memory for the plan, or too little of it contiguous, or the program
would exit or be killed if started now; 2 usage error, a command line that the program refuses,
no program that can be queried, or a format that cannot express the plan.")]
pub struct Plan {
    #[command(flatten)]
    wishes: PlanOptions,
    /// Output format: text, JSON (schema hugewise.plan/2), or the configuration of one tool
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Text)]
    format: OutputFormat,
    /// Same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Plan for the machine captured in DIR by 'hugewise check --capture': its pools, memory and settings. The
    /// java of this machine is rehearsed, with the page sizes of the captured machine
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Plan for the JVM or the database server that runs as process PID, or that it has started: for its command
    /// line and environment. Also a unit (NAME.service), a container (its ID) or a control group (its path)
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pid: Option<ProcessArgument>,
    /// Command line of the JVM, or of the PostgreSQL or MariaDB server
    #[arg(last = true, required_unless_present = "pid")]
    command: Vec<String>,
}

/// Parameters of a plan, apart from the command line.
#[derive(Args)]
pub struct PlanOptions {
    /// Backing to plan for: hugetlb[:SIZE], shm[:SIZE] or thp [default: the one that COMMAND
    /// requests, or hugetlb]
    #[arg(short, long)]
    backing: Option<Backing>,
    /// Number of instances of COMMAND that run at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    instances: u32,
    /// Memory outside of the heap to include in the plan: SIZE, or 'direct' for the JVM's limit of
    /// direct buffers
    #[arg(long, value_name = "SIZE|direct", value_parser = off_heap)]
    off_heap: Option<OffHeapRequest>,
    /// NUMA node of the pool [default: that of numactl --membind in COMMAND, or all]
    #[arg(long, value_name = "N")]
    node: Option<u32>,
    /// Plan for another machine or container of these sizes, as memory=SIZE or memory=SIZE,cpus=N: the JVM chooses its
    /// heap and collector as there [default: this machine, or that of --root]
    #[arg(long, value_name = "SIZES")]
    target: Option<TargetSizes>,
}

impl Default for PlanOptions {
    /// One instance, on the backing that its command line requests.
    fn default() -> PlanOptions {
        PlanOptions { backing: None, instances: 1, off_heap: None, node: None, target: None }
    }
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputFormat {
    Text,
    Json,
    File(Format),
}

impl ValueEnum for OutputFormat {
    fn value_variants<'a>() -> &'a [OutputFormat] {
        static OUTPUT_FORMATS: OnceLock<Vec<OutputFormat>> = OnceLock::new();
        OUTPUT_FORMATS.get_or_init(|| {
            let files = Format::value_variants().iter().copied().map(OutputFormat::File);
            [OutputFormat::Text, OutputFormat::Json].into_iter().chain(files).collect()
        })
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            OutputFormat::Text => Some(PossibleValue::new("text").help("Text for the terminal")),
            OutputFormat::Json => {
                Some(PossibleValue::new("json").help("All values, for programs and 'hugewise apply'"))
            }
            OutputFormat::File(format) => format.to_possible_value(),
        }
    }
}

fn off_heap(text: &str) -> Result<OffHeapRequest, Reason> {
    match text {
        "direct" => Ok(OffHeapRequest::Direct),
        size => Ok(OffHeapRequest::Bytes(size.parse()?)),
    }
}

pub fn run(plan: &Plan, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let root = machine::root(plan.root.as_deref())?;
    let planned = match &plan.pid {
        None => make(&root, &plan.wishes, &plan.command)?,
        Some(pid) if !root.is_live() => {
            // Its program would be started to query it: only one that the user has read is.
            let process = hugewise_linux::proc::process::Process::read(&root, pid.process(&root)?)?;
            bail!(
                "a plan starts the program to query it, and this command line is of a capture. Read it, and give it after '--':\n\n  \
                 hugewise plan --root {} -- {}",
                root.path("").display(),
                crate::output::terminal::plain(&hugewise_linux::shell::line(&process.command))
            )
        }
        Some(pid) => {
            let program = RunningProgram::read(&root, pid.process(&root)?)?;
            let mut planned =
                make_with(&root, &plan.wishes, &program.command, &|facts| program.give_back(facts))?;
            planned.notes.extend(program.notes);
            planned
        }
    };
    let shape = if plan.json { OutputFormat::Json } else { plan.format };
    let service = plan.pid.as_ref().and_then(ProcessArgument::service);
    match shape {
        OutputFormat::Text => print_styled(&text::text(&planned, terminal)?, terminal)?,
        OutputFormat::Json => print_json(&json::text(&planned)?)?,
        OutputFormat::File(format) => match formats::render(&planned, format, service.as_ref()) {
            Ok(file) => print(&file)?,
            // The plan needs nothing in this format: not an error, but there is no file to print.
            Err(said) if said.instead.is_none() => standard_error::say(said),
            Err(error) => return Err(error.into()),
        },
    }
    Ok(if is_negative(&planned) { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS })
}

/// The command line of a program that can be planned for.
enum ProgramLine {
    Java(LaunchLine),
    Postgres(PostgresLine),
    Mariadb(MariadbLine),
}

impl ProgramLine {
    fn parse(root: &Root, command: &[String]) -> anyhow::Result<ProgramLine> {
        let variable = |name: &str| env::var(name).ok();
        if let Some(found) = launch::find_program(command, &line::NAMES, &["PGDATA"], &variable)? {
            let pgdata = found.variables.into_iter().next().flatten();
            return Ok(ProgramLine::Postgres(PostgresLine::parse(&found.words, pgdata)?));
        }
        if let Some(found) = launch::find_program(command, &mariadb_line::NAMES, &[], &variable)? {
            return Ok(ProgramLine::Mariadb(MariadbLine::parse(&found.words)?));
        }
        let line = match LaunchLine::of_java(command, &read_option_file) {
            Err(error @ LaunchError::NotJava { .. }) => {
                let launcher = Launcher::of(command, root).filter(Launcher::is_known);
                Err(launcher.map_or(error, |launcher| launcher.unknown_command()))
            }
            line => line,
        };
        Ok(ProgramLine::Java(line.context("cannot plan for this command line")?))
    }
}

/// Plans a launch line for the machine of `root`; the program is rehearsed on this machine.
pub fn make(root: &Root, wishes: &PlanOptions, command: &[String]) -> anyhow::Result<Planned> {
    make_with(root, wishes, command, &|_| {})
}

/// Like [`make`], with facts that `changed` changes.
fn make_with(
    root: &Root,
    wishes: &PlanOptions,
    command: &[String],
    changed: &dyn Fn(&mut Facts),
) -> anyhow::Result<Planned> {
    if wishes.backing == Some(Backing::Base) {
        bail!("--backing base needs no plan; use hugetlb, shm or thp");
    }
    let sizes = PageSizes::read(root).map_err(anyhow::Error::msg)?;
    architecture::check(root, &sizes, command)?;
    let line = ProgramLine::parse(root, command)?;
    let holder = if root.is_live() { journal::held(Path::new(STATE_DIR)) } else { None };
    // The pages are for the programs that the experiment itself starts.
    let holder = holder.filter(|holder| !tree::processes(root, holder.owner).contains(&process::id()));
    let wanted = PlanRequest {
        backing: wishes.backing,
        instances: wishes.instances,
        off_heap: wishes.off_heap,
        node: wishes.node,
        source: match wishes.target {
            Some(_) => TargetSource::Given,
            None if root.is_live() => TargetSource::ThisMachine,
            None => TargetSource::Captured,
        },
    };
    let plan_after = |scan, cgroup: Option<&CgroupLimits>| -> anyhow::Result<(Planned, Facts)> {
        let mut facts = Facts::gather(root, scan);
        facts.cgroup = cgroup.cloned().unwrap_or(facts.cgroup);
        changed(&mut facts);
        if let Some(target) = &wishes.target {
            facts = target.facts(facts);
        }
        let excluded = holder.as_ref().and_then(|holder| experiment::exclude(&mut facts, holder));
        let mut plan = match &line {
            ProgramLine::Java(line) => planner::plan(command, line, &wanted, &facts, &sizes)?,
            ProgramLine::Postgres(line) => postgres::plan(command, line, &wanted, &facts, &sizes)?,
            ProgramLine::Mariadb(line) => mariadb::plan(command, line, &wanted, &facts, &sizes)?,
        };
        plan.notes.extend(excluded);
        plan.actions = target::located(plan.actions, wanted.source);
        Ok((plan, facts))
    };
    // Only the largest pages need a scan, which takes a second for each 30 GiB.
    let (mut plan, mut facts) = plan_after(Scan::Never, None)?;
    let needed = |size| {
        plan.pools.iter().find(|pool| pool.page_size_bytes == size).map_or(Pages(0), |pool| pool.pages_needed)
    };
    let pools: Vec<Pool> = facts.machine_pools().cloned().collect();
    let tried = (wanted.source != TargetSource::Given
        && touch::try_hidden_limits(root, &mut facts.cgroup, &pools, &needed))
    .then(|| facts.cgroup.clone());
    if tried.is_some() {
        (plan, facts) = plan_after(Scan::Never, tried.as_ref())?;
    }
    let needs_scan = plan.pools.iter().any(|pool| facts.contiguity.needs_scan(pool.page_size_bytes));
    if needs_scan { Ok(plan_after(Scan::IfQuick, tried.as_ref())?.0) } else { Ok(plan) }
}

fn is_negative(plan: &Planned) -> bool {
    let missing = [PoolAvailability::NotEnoughMemory, PoolAvailability::NotContiguous];
    plan.pools.iter().any(|pool| missing.contains(&pool.obtainable))
        || matches!(
            plan.verdict.outcome,
            StartOutcome::Exits | StartOutcome::DiesOfSigbus | StartOutcome::DiesOutOfMemory
        )
}
