//! `--server NAME.service`: a systemd service that runs.

use std::{fs, io};

use anyhow::{Context, bail, ensure};
use hugewise_databases::postgres::line;
use hugewise_jvm::launch::LaunchLine;
use hugewise_linux::{c_library, hugepages::thp, proc::tree, root::Root, systemd::Unit};
use hugewise_measure::{
    experiment::CaseToRun,
    serving::{Service, TakenUnit},
    workload::UnitProgram,
};

use crate::process_argument::is_jvm;

/// The mode in which every program has huge pages, if they are not disabled for it alone.
const ALWAYS: &str = "always";

/// Reads the program of a service that runs.
pub fn program(root: &Root, unit: &Unit) -> anyhow::Result<UnitProgram> {
    let main = unit.main_process().with_context(|| format!("{unit}: its main process is unknown"))?;
    let main = main.with_context(|| {
        format!("{unit} does not run: start it, so that its program is known: systemctl start {unit}")
    })?;
    let jvm = tree::processes(root, main).into_iter().find(|pid| is_jvm(root, *pid));
    let pid = jvm.unwrap_or(main);
    let words = |name: &str| -> anyhow::Result<Vec<String>> {
        let text = root.read(format!("proc/{pid}/{name}"));
        let text = text.with_context(|| format!("{unit}: cannot read the {name} of process {pid}"))?;
        Ok(text.split_terminator('\0').map(str::to_owned).collect())
    };
    let command = words("cmdline")?;
    if jvm.is_some() {
        check_flags(unit, &command)?;
    } else {
        check_program(root, unit, pid)?;
    }
    let pair =
        |entry: &String| entry.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let allocator = c_library::of_program(root, format!("proc/{pid}/exe")).ok().and_then(|of| of.allocator);
    Ok(UnitProgram {
        unit: unit.clone(),
        is_jvm: jvm.is_some(),
        allocator,
        environment: words("environ")?.iter().filter_map(pair).collect(),
    })
}

/// Flags of a command line override those in variables.
fn check_flags(unit: &Unit, command: &[String]) -> anyhow::Result<()> {
    // The files that it names are those of another user.
    let unread = |_: &str| Err(io::ErrorKind::Unsupported.into());
    let Some(Ok(line)) = LaunchLine::parse(command, &unread) else { return Ok(()) };
    let (_, flags) = line.with_page_flags(&[]);
    ensure!(
        flags.is_empty(),
        "the command line of {unit} has {}, which overrides the variable that sets a backing: remove it there first",
        flags.join(" ")
    );
    Ok(())
}

/// Fails if variables do not set the pages of the program.
fn check_program(root: &Root, unit: &Unit, pid: u32) -> anyhow::Result<()> {
    let exe = fs::read_link(root.path(format!("proc/{pid}/exe"))).unwrap_or_default();
    let name = exe.file_name().unwrap_or_default().to_string_lossy();
    ensure!(
        !line::NAMES.contains(&&*name),
        "{unit} is a PostgreSQL server, whose huge_pages is an option and no variable: compare its command line, as in \
         --server 'postgres -D FOLDER -p {{port}}' --user postgres"
    );
    if thp::read(root).enabled.known().is_some_and(|mode| mode == ALWAYS) {
        bail!(
            "{unit} has huge pages on base, too, in the THP mode {ALWAYS}; change it for the comparison: \
             sudo hugewise apply --thp-enabled madvise"
        );
    }
    Ok(())
}

/// The services of an experiment, which run again as they were when this is dropped.
pub struct Taken(Vec<TakenUnit>);

impl Taken {
    /// Stops the services of the cases.
    pub fn take(cases: &[CaseToRun]) -> anyhow::Result<Taken> {
        let services =
            cases.iter().flat_map(|case| &case.programs).filter_map(|program| program.service.as_ref());
        let mut of_units: Vec<(&Unit, &Service)> =
            services.filter_map(|service| Some((service.unit.as_ref()?, service))).collect();
        of_units.sort_by_key(|(unit, _)| *unit);
        of_units.dedup_by_key(|(unit, _)| *unit);
        let mut taken = Taken(Vec::new());
        for (unit, service) in of_units {
            let stopped = TakenUnit::take(unit, &service.program);
            taken.0.push(stopped.with_context(|| format!("{unit} could not be stopped"))?);
        }
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        for unit in self.0.drain(..) {
            if let Err(error) = unit.give_back() {
                eprintln!("hugewise: a service was not started again: {error}");
            }
        }
    }
}
