//! The program of a systemd service.

use std::{fs, io};

use anyhow::{Context, ensure};
use hugewise_databases::postgres::line;
use hugewise_jvm::launch::LaunchLine;
use hugewise_linux::{c_library, proc::tree, root::Root, systemd::Unit};
use hugewise_measure::workload::UnitProgram;

use crate::process_argument::is_jvm;

/// Reads the program of a service that runs, and that variables can set the pages of.
///
/// `of_postgres`: what to do instead for a PostgreSQL server.
pub fn read(root: &Root, unit: &Unit, of_postgres: &str) -> anyhow::Result<UnitProgram> {
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
        let exe = fs::read_link(root.path(format!("proc/{pid}/exe"))).unwrap_or_default();
        let name = exe.file_name().unwrap_or_default().to_string_lossy();
        ensure!(
            !line::NAMES.contains(&&*name),
            "{unit} is a PostgreSQL server, whose huge_pages is an option and no variable: {of_postgres}"
        );
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
