//! `hugewise compare`: what huge pages buy a workload, measured and proven.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use hugewise_jvm::{
    jdks::{self, Environment, Jdk},
    launch::LaunchLine,
};
use hugewise_kernel::{backing::Backing, page_sizes::PageSizes, root::Root, units::Bytes};
use hugewise_measure::{
    analysis,
    comparison::{Comparison, Design, Verdict},
    execution,
    experiment::{Blocks, CaseToRun, Experiment, ExperimentError, Rules},
    touch::Touch,
    workload::{Workload, metric::Metric},
};

use super::bench::at_least_one;
use crate::{NEGATIVE, parameters, progress::Bar, report, session, terminal::Terminal};

/// What huge pages buy a workload: run it on each backing, prove what each run got, compare
///
/// Without a COMMAND the embedded workload runs: random reads of a large buffer, natively and, where
/// a java is found, in a JVM with a heap of 1 GiB. A COMMAND that begins with java gets the right
/// flags for that very JVM; any other program is asked through its C library and the kernel. Each
/// run's coverage is read from the kernel, and a run that did not get its pages is not counted.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise compare
  sudo hugewise compare -- java -Xms4g -Xmx4g -XX:+AlwaysPreTouch -jar app.jar --once
  sudo hugewise compare -b base,thp,hugetlb:1GiB --rounds 10 --html report.html -- java -Xmx8g Main
  sudo hugewise compare -L heap 1g,2g,4g -- java -Xms{heap} -Xmx{heap} Main
  hugewise compare -b base,thp --metric 'ops/s=throughput: ([0-9.]+)' -- ./server-benchmark
  hugewise compare --aa                the same backing twice: how much this machine's noise shows

A pool that is too small is grown for the time of the experiment and put back at its end, on Ctrl-C
and on an error too; that needs root. After a SIGKILL, 'hugewise restore' puts it back.
Exit status: 0 compared; 1 a backing fell back, or one that was named was left out; 2 it could not
be done; 128 and the signal when interrupted.")]
pub struct Compare {
    /// Backings: base, thp, hugetlb[:SIZE], shm[:SIZE]; base is always among them
    #[arg(short, long, value_delimiter = ',', value_name = "LIST", default_value = "base,thp,hugetlb")]
    backing: Vec<Backing>,
    /// Blocks: each runs every backing once, in random order [default: 5, and more until a
    /// difference of 10 % would be seen, or --max-time is over]
    #[arg(short, long, value_parser = at_least_one)]
    rounds: Option<usize>,
    /// Begin no further block after this many seconds, where --rounds does not say how many
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "120", conflicts_with = "rounds")]
    max_time: Duration,
    /// Runs of each backing before, that are not counted
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    warm_up: usize,
    /// Seed of the order [default: another one each time; the report names it]
    #[arg(long)]
    seed: Option<u64>,
    /// End a run that takes longer, in seconds, and give up
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// A figure of the program's own: the last match of REGEX in its output. More is better where
    /// NAME begins with + or ends in /s. The first metric decides the verdict, else wall time
    #[arg(long, value_name = "NAME=REGEX")]
    metric: Vec<Metric>,
    /// Scores from the JSON result that the COMMAND lets JMH write here (-rf json -rff FILE)
    #[arg(long, value_name = "FILE")]
    jmh: Option<PathBuf>,
    /// Run COMMAND with each value in place of {NAME}; may be given several times
    #[arg(short = 'L', long, num_args = 2, value_names = ["NAME", "V1,V2,…"])]
    parameter_list: Vec<String>,
    /// The least share of huge pages, in percent, with which a run counts
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u8).range(1..=100))]
    min_coverage: u8,
    /// What must stay available beside a pool [default: a tenth of what is available now]
    #[arg(long, value_name = "SIZE")]
    floor: Option<Bytes>,
    /// Run the first backing against itself, to see how the method behaves on this machine
    #[arg(long)]
    aa: bool,
    /// Size of the embedded workload's buffer
    #[arg(long, value_name = "SIZE", default_value = "1000000000", conflicts_with = "command")]
    bytes: Bytes,
    /// The java of the embedded workload [default: that of PATH]
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    java: Option<PathBuf>,
    /// Leave the embedded workload's Java half out
    #[arg(long, conflicts_with_all = ["command", "java"])]
    no_java: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Write the result as one self-contained page, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true)]
    command: Vec<String>,
}

/// The embedded workload: reads in an iteration, and iterations, of a second or two in all.
const READS: u64 = 5_000_000;
const ITERATIONS: usize = 9;

/// Runs the command.
pub fn run(compare: &Compare, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let root = Root::live();
    let sizes = PageSizes::read(&root).map_err(anyhow::Error::msg)?;
    compare.refuse_impossible(&sizes)?;
    let interrupt = session::watch()?;
    let mut machine = session::open_machine(&root, &compare.purpose(), compare.floor)?;
    // With a journal the scratch folder vanishes with it, after a SIGKILL too.
    let own_scratch = match machine.journal() {
        Some(_) => None,
        None => Some(execution::scratch_dir().context("making a scratch folder")?),
    };
    let scratch = match (machine.journal(), &own_scratch) {
        (Some(journal), _) => journal.scratch(),
        (None, Some(dir)) => dir.path().to_owned(),
        (None, None) => bail!("no scratch folder"),
    };
    let mut notes = Vec::new();
    let cases = compare.cases(&root, &scratch, &mut notes)?;
    let design = compare.design();
    let experiment = Experiment {
        root: &root,
        sizes: &sizes,
        cases: &cases,
        design: &design,
        rules: Rules {
            blocks: compare.rounds.map_or(Blocks::UntilPrecise(compare.max_time), Blocks::Exactly),
            timeout: compare.timeout,
            least_coverage: f64::from(compare.min_coverage) / 100.0,
        },
        scratch: &scratch,
        interrupt: &interrupt,
    };
    let comparison = experiment.conduct(&mut machine, &mut Bar::new());
    session::close(machine)?;
    let mut comparison = match comparison {
        Ok(comparison) => comparison,
        Err(error) => return session::interrupted(&error, &interrupt).ok_or_else(|| advised(error)),
    };
    comparison.notes.splice(0..0, notes);
    analysis::analyse(&mut comparison);
    compare.show(&comparison, terminal)?;
    Ok(compare.exit_code(&comparison))
}

/// An error with the next step.
fn advised(error: ExperimentError) -> anyhow::Error {
    anyhow::Error::new(error).context("the comparison was broken off, and the machine is as it was")
}

impl Compare {
    /// What can be refused before anything is started.
    fn refuse_impossible(&self, sizes: &PageSizes) -> anyhow::Result<()> {
        for backing in &self.backing {
            // One that has no name but a kind may be missing; one that was named must be there.
            if let (Some(missing), Some(_)) = (sizes.missing(*backing), backing.named_size()) {
                bail!("--backing {backing}: {missing}");
            }
        }
        ensure!(self.bytes > Bytes::ZERO, "--bytes 0: a buffer of nothing cannot be read");
        if self.command.is_empty() {
            for (given, option) in [
                (!self.parameter_list.is_empty(), "--parameter-list"),
                (!self.metric.is_empty(), "--metric"),
                (self.jmh.is_some(), "--jmh"),
            ] {
                ensure!(!given, "{option} needs a COMMAND: hugewise compare {option} … -- COMMAND");
            }
        }
        if let Some(html) = &self.html {
            Target::open(html).with_context(|| format!("the report {} cannot be written", html.display()))?;
        }
        Ok(())
    }

    fn purpose(&self) -> String {
        match self.command.split_first() {
            Some((program, _)) => format!("compare -- {program} …"),
            None => "compare".to_owned(),
        }
    }

    fn design(&self) -> Design {
        let mut arms: Vec<Backing> = Vec::new();
        if self.aa {
            arms = vec![self.backing.first().copied().unwrap_or(Backing::Base); 2];
        } else {
            for backing in [Backing::Base].iter().chain(&self.backing) {
                if !arms.contains(backing) {
                    arms.push(*backing);
                }
            }
        }
        let now =
            || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| u64::from(now.subsec_nanos()));
        Design {
            arms,
            rounds: self.rounds.unwrap_or(0), // Counted when it is over.
            warm_up: self.warm_up,
            seed: self.seed.unwrap_or_else(now),
            aa: self.aa,
        }
    }

    fn cases(&self, root: &Root, scratch: &Path, notes: &mut Vec<String>) -> anyhow::Result<Vec<CaseToRun>> {
        if self.command.is_empty() {
            return self.embedded(root, scratch, notes);
        }
        let combinations = parameters::combinations(&self.parameter_list, &self.command)?;
        let case = |parameters: BTreeMap<String, String>| {
            let command = parameters::substitute(&self.command, &parameters);
            Ok(CaseToRun { workload: self.workload(command)?, parameters })
        };
        combinations.into_iter().map(case).collect()
    }

    fn workload(&self, command: Vec<String>) -> anyhow::Result<Workload> {
        let mut metrics = self.metric.clone();
        if let Some(file) = &self.jmh {
            ensure!(
                file.exists(),
                "--jmh {}: which benchmarks it holds must be known before: run the command once, with \
                 '-rf json -rff {0}'",
                file.display()
            );
            metrics.extend(Metric::of_jmh(file).map_err(anyhow::Error::msg)?);
        }
        match LaunchLine::parse(&command, &|file| fs::read_to_string(file)) {
            Some(line) => Workload::java(line?, command, metrics).map_err(anyhow::Error::msg),
            None => Ok(Workload::other(command, metrics)),
        }
    }

    fn embedded(
        &self,
        root: &Root,
        scratch: &Path,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<Vec<CaseToRun>> {
        let touch = Touch {
            bytes: self.bytes,
            backing: Backing::Base,
            reads: READS,
            iterations: ITERATIONS,
            warm_up: 1,
        };
        let program = env::current_exe().context("finding this program's own file")?;
        let mut workloads = vec![Workload::native(program, touch)];
        if !self.no_java {
            match self.embedded_java(root, &touch, scratch) {
                Ok(java) => workloads.push(java),
                Err(reason) => notes.push(format!("the Java half was left out: {reason}")),
            }
        }
        let case = |workload| CaseToRun { workload, parameters: BTreeMap::new() };
        Ok(workloads.into_iter().map(case).collect())
    }

    fn embedded_java(&self, root: &Root, touch: &Touch, scratch: &Path) -> Result<Workload, String> {
        let jdks = jdks::find(root, &Environment::of_this_process());
        let chosen: Option<&Jdk> = match &self.java {
            Some(java) => {
                let java = fs::canonicalize(java).map_err(|error| format!("{}: {error}", java.display()))?;
                jdks.iter().find(|jdk| fs::canonicalize(&jdk.java).is_ok_and(|known| known == java))
            }
            None => jdks.iter().find(|jdk| jdk.default).or(jdks.first()),
        };
        let jdk = chosen.ok_or(
            "no JDK was found; install one (Debian: default-jdk-headless), or name its java with --java",
        )?;
        if jdk.has_compiler.known() == Some(&false) {
            return Err(format!(
                "{} has no compiler (module jdk.compiler); install a full JDK",
                jdk.home.display()
            ));
        }
        if touch.bytes > LARGEST_ARRAY {
            return Err(format!("an array of {} does not fit in a heap of 1 GiB", touch.bytes));
        }
        Workload::java_touch(jdk, touch, scratch)
    }

    fn show(&self, comparison: &Comparison, terminal: &Terminal) -> anyhow::Result<()> {
        if self.json {
            println!("{}", serde_json::to_string_pretty(comparison)?);
        } else {
            print!("{}", report::compare::text(comparison, terminal));
        }
        if let Some(file) = &self.html {
            let page = report::compare::html(comparison)?;
            Target::open(file).and_then(|target| target.write(file, &page)).with_context(|| {
                format!("writing the report {}; what it would have held is printed above", file.display())
            })?;
            eprintln!("hugewise: wrote {}", file.display());
        }
        Ok(())
    }

    fn exit_code(&self, comparison: &Comparison) -> ExitCode {
        let named = env::args_os().any(|word| {
            let word = word.to_string_lossy();
            word.starts_with("--backing") || word.starts_with("-b")
        });
        let negative = comparison.backings.iter().any(|row| match row.verdict {
            Verdict::FellBack => true,
            Verdict::LeftOut => named,
            _ => false,
        });
        if negative { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS }
    }
}

/// The largest array for which a heap of 1 GiB leaves the program some room.
const LARGEST_ARRAY: Bytes = Bytes(1_010_000_000);

/// Where a report goes.
enum Target {
    /// A file: a draft beside it, so that a reader never sees half a page, and no link is followed.
    File(tempfile::NamedTempFile),
    /// A device or a pipe, like /dev/stdout.
    Stream(fs::File),
}

impl Target {
    fn open(file: &Path) -> anyhow::Result<Target> {
        if let Ok(found) = fs::metadata(file) {
            ensure!(!found.is_dir(), "it is a folder");
            if !found.is_file() {
                return Ok(Target::Stream(fs::OpenOptions::new().write(true).open(file)?));
            }
        }
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let draft = tempfile::NamedTempFile::new_in(folder);
        Ok(Target::File(draft.with_context(|| format!("in the folder {}", folder.display()))?))
    }

    fn write(self, file: &Path, page: &str) -> anyhow::Result<()> {
        match self {
            Target::Stream(mut stream) => stream.write_all(page.as_bytes())?,
            Target::File(mut draft) => {
                draft.write_all(page.as_bytes())?;
                draft.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
                draft.persist(file)?;
            }
        }
        Ok(())
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 =
        text.trim_end_matches('s').parse().map_err(|_| "a number of seconds is needed".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|limit| !limit.is_zero())
        .ok_or_else(|| "a positive number of seconds is needed".to_owned())
}
