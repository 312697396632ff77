//! `hugewise bench stall`: a program, or a test load, on fragmented memory.

pub mod result;
pub mod text;

use std::{
    env,
    ffi::OsString,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus},
};

use anyhow::{Context, bail};
use clap::Args;
use hugewise_changes::{
    journal::{Journal, JournalError, STATE_DIR},
    scratch::Scratch,
};
use hugewise_evidence::observation::{Observer, RegionOfInterest};
use hugewise_linux::{
    hugepages::{page_sizes::PageSizes, thp},
    interrupt::Interrupt,
    json,
    root::Root,
    settings::Setting,
    sys::file,
    units::Bytes,
};
use hugewise_measure::{
    execution::{self, ExecutionError, Launch},
    fragmentation::{Fragmenter, Held, HostError, Plan, Probe, probe, worker},
};
use hugewise_record::recording::{self, Assignment, Header, Target};

use self::result::{FragmentationSummary, Probes, StallReport, ThpMode};
use crate::{
    FAILED, NEGATIVE,
    commands::record::{other_recording, text as record_text},
    machine,
    output::{
        progress::ByteProgress,
        standard_error,
        standard_output::{print_json, print_styled},
        terminal::Terminal,
    },
};

/// Run a program on fragmented memory, as on a machine that has been up for months
///
/// Fills all available memory, then frees --memory of it in fragments of which the kernel cannot make huge
/// pages: one base page in each huge-page-sized block is unmovable. Then runs COMMAND and records which
/// threads wait for the kernel. Without COMMAND, a test load allocates half of that memory as huge pages,
/// before and after the fragmentation. At the end all memory is released.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise bench stall
  sudo hugewise bench stall -o slow.rec -- java -Xmx5g -XX:+UseTransparentHugePages -jar app.jar
  sudo hugewise bench stall --memory 3GiB -- ./server-benchmark

The page cache is evicted: other programs read files from disk again. If hugewise ends for any
reason, including SIGKILL, the memory is released. If other programs need more memory than is left,
the OOM killer first ends the process that holds the memory. Without root, memory is fragmented as
well, but less is known about which threads waited.

Exit status: that of COMMAND, or 128 + signal number. Without COMMAND: 0 success; 1 the memory was
released early, or less than 90 % of the huge pages that were free before the test are free after it;
2 usage or environment error; 128 + signal number if interrupted.")]
pub struct Arguments {
    /// Fragmented memory that is free for the program, at least 256MiB [default: 6GiB, or all if less is
    /// available]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// Fragment only --memory, not all of the machine's memory (for tests)
    #[arg(long, hide = true, requires = "memory")]
    share: bool,
    /// Keep the recording in FILE, which must not exist
    #[arg(short, long, value_name = "FILE", requires = "command")]
    output: Option<PathBuf>,
    /// Print JSON (schema hugewise.stall/2)
    #[arg(long)]
    json: bool,
    /// Program to run, with its arguments
    #[arg(last = true)]
    command: Vec<OsString>,
}

struct StallBench<'a> {
    arguments: &'a Arguments,
    fragmenter: Fragmenter,
    journal: Result<Journal, JournalError>,
    interrupt: Interrupt,
    scratch: Scratch,
}

pub fn run(arguments: &Arguments, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    if let Some(file) = &arguments.output {
        anyhow::ensure!(
            !file.exists(),
            "{}: the file exists; recordings are never overwritten",
            file.display()
        );
    }
    let root = Root::live();
    let sizes = PageSizes::read(&root).map_err(anyhow::Error::msg)?;
    let interrupt = machine::install_signal_handlers()?;
    // Locked although no setting changes: two processes that fill the memory at the same time would both
    // fail.
    let lock = machine::open_machine(&root, "bench stall", None)?;
    let journal = match Journal::open_recording(&root, Path::new(STATE_DIR), "bench stall") {
        Err(JournalError::Busy(who)) => return Err(other_recording(&who)),
        Err(error) if error.is_of_another() => return Err(error.into()),
        journal => journal,
    };
    let environment = lock.mark(Launch::default());
    let program = env::current_exe().context("cannot determine the path of this executable")?;
    let asked = arguments.memory;
    let fragmenter = Fragmenter { program, root, sizes, asked, share: arguments.share, environment };
    let scratch = Scratch::of(journal.as_ref().ok()).context("cannot create a temporary folder")?;
    let mut bench = StallBench { arguments, fragmenter, journal, interrupt, scratch };
    let done = bench.conduct();
    // Settings are restored before the result is printed.
    let restored = bench.journal.map(Journal::close).unwrap_or_default();
    drop(lock);
    let (report, recorded) = match done {
        Ok(done) => done,
        Err(error) => {
            let interrupted = matches!(error.downcast_ref(), Some(HostError::Interrupted));
            return if interrupted { Ok(machine::after_signal(&bench.interrupt)) } else { Err(error) };
        }
    };
    if arguments.json {
        print_json(&json::text(&report)?)?;
    } else if let Some((recorded, name)) = &recorded {
        // Standard output belongs to the program.
        let page = text::text(&report, terminal)? + &record_text::text(recorded, name, terminal);
        let ending = text::ending(&report, arguments.output.as_deref(), terminal)?;
        standard_error::print_styled(&(page + &ending), terminal);
    } else {
        print_styled(&(text::text(&report, terminal)? + &text::ending(&report, None, terminal)?), terminal)?;
    }
    machine::all_restored(&restored)?;
    Ok(match recorded {
        Some((recorded, _)) => ExitCode::from(recorded.status.map_or(0, exit_code)),
        None if report.held_to_the_end && report.returned.is_as_it_was() => ExitCode::SUCCESS,
        None => ExitCode::from(NEGATIVE),
    })
}

impl StallBench<'_> {
    fn conduct(&mut self) -> anyhow::Result<(StallReport, Option<(recording::RecordingResult, PathBuf)>)> {
        // Refuses before anything is changed.
        let plan = self.fragmenter.plan()?;
        let mode = ThpMode::of(thp::read(&self.fragmenter.root));
        // Half of the fragmented memory, in whole huge pages.
        let half = Bytes(plan.left.0 / 2);
        let bytes = self.fragmenter.sizes.thp.map_or(half, |thp| half.whole_pages(thp) * thp);
        let mut before = None;
        if self.arguments.command.is_empty() {
            self.enable_delay_accounting();
            before = Some(self.probe(bytes)?);
        }
        if !self.arguments.json {
            standard_error::say(format_args!(
                "filling {} of memory and freeing {} of it in fragments; Ctrl-C releases all",
                plan.taken, plan.left
            ));
        }
        let mut held = self.fragment(&plan)?;
        let (outcome, blocks_before) = (held.outcome.clone(), held.before.blocks);
        let (probes, recorded) = match before {
            Some(before) => (Some(Probes { before, fragmented: self.probe(bytes)? }), None),
            None => (None, Some(self.record()?)),
        };
        let held_to_the_end = held.is_held();
        let returned = self.fragmenter.restore(held.end(), &self.interrupt)?;
        let report = StallReport {
            schema: "hugewise.stall/2",
            mode,
            fragmented: FragmentationSummary { outcome, blocks_before },
            probes,
            program: recorded.as_ref().map(|(recorded, name)| record_text::RecordReport::of(recorded, name)),
            held_to_the_end,
            returned,
        };
        Ok((report, recorded))
    }

    fn fragment(&self, plan: &Plan) -> Result<Held, HostError> {
        let mut bar = ByteProgress::new(plan.taken.0);
        let mut reported = 0;
        self.fragmenter.fragment(&self.interrupt, &mut |filled, _| {
            bar.more(filled.0.saturating_sub(reported));
            reported = filled.0;
        })
    }

    /// Runs the program, which inherits the terminal, and records it.
    fn record(&mut self) -> anyhow::Result<(recording::RecordingResult, PathBuf)> {
        let kept = &self.arguments.output;
        let file = kept.clone().unwrap_or_else(|| self.scratch.path().join("stall.rec"));
        let name = kept.clone().unwrap_or_else(|| "not kept (-o FILE keeps it)".into());
        let assignment = Assignment {
            target: Target::Command(self.arguments.command.clone()),
            output: &file,
            limit: None,
            jvm_log: true,
        };
        let quiet = self.arguments.json;
        let say = &mut |header: &Header| {
            if !quiet {
                standard_error::print(&record_text::missing(header));
            }
        };
        let root = &self.fragmenter.root;
        let recorded = recording::record(root, &mut self.journal, &assignment, &self.interrupt, say)?;
        Ok((recorded, name))
    }

    /// Enables the kernel's delay accounting, without which the waits of the test load are unknown; needs
    /// root.
    fn enable_delay_accounting(&mut self) {
        let is_off = Setting::TaskDelayacct.read(&self.fragmenter.root).is_ok_and(|now| now != "1");
        if let (Ok(journal), true) = (&mut self.journal, is_off) {
            let _ = journal.set(Setting::TaskDelayacct, "1");
        }
    }

    fn probe(&self, bytes: Bytes) -> anyhow::Result<Probe> {
        let mut launch = probe::launch(&self.fragmenter.program, bytes);
        launch.environment.clone_from(&self.fragmenter.environment.environment);
        let root = &self.fragmenter.root;
        let observer = Observer::new(root, RegionOfInterest::Reported, self.fragmenter.sizes.thp);
        let mut observer = observer.with_longest_interval();
        let run = execution::run(&launch, &mut observer, self.scratch.path(), None, &self.interrupt);
        let execution = match run {
            Err(ExecutionError::Interrupted) => return Err(HostError::Interrupted.into()),
            run => run?,
        };
        if let Some(failure) = execution.failure() {
            bail!("the test load of {bytes} failed: {failure}");
        }
        serde_json::from_str(&execution.output).context("cannot read the result of the test load")
    }
}

/// The exit status of the program as a shell reports it: 128 + signal number after a signal.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(0);
    u8::try_from(code).unwrap_or(FAILED)
}

/// Fragments memory in this process, according to a [`Plan`] as JSON, until standard input is closed.
pub fn run_fragment_worker(plan: &str) -> anyhow::Result<ExitCode> {
    worker::run(&serde_json::from_str::<Plan>(plan)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the test load of `bytes`, a number, in this process and prints the result as JSON.
pub fn run_probe(bytes: &str) -> anyhow::Result<ExitCode> {
    // The OOM killer should end this process before other programs.
    let _ = file::set(Path::new("/proc/self/oom_score_adj"), "500");
    let probe = probe::run(serde_json::from_str(bytes)?).map_err(anyhow::Error::msg)?;
    print_json(&(serde_json::to_string(&probe)? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
