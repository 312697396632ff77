//! The program of a systemd service.

use std::io;

use anyhow::{Context, bail, ensure};
use hugewise_databases::postgres::line;
use hugewise_jvm::{
    launch::{LaunchLine, OPTION_VARIABLES},
    regions::is_hotspot,
};
use hugewise_launch::{channel::Channel, launcher::Launcher};
use hugewise_linux::{
    c_library,
    proc::tree,
    root::Root,
    systemd::{Unit, UnitEnvironment},
    users,
};
use hugewise_measure::workload::UnitProgram;

/// Reads the program of a service that runs, and that variables can set the pages of.
///
/// The processes show what the program is; its variables are those of its configuration, because its user can change
/// those of the processes, and steps of a service may run as another user.
///
/// `of_postgres`: what to do instead for a PostgreSQL server.
pub fn read(root: &Root, unit: &Unit, of_postgres: &str) -> anyhow::Result<UnitProgram> {
    let main = unit.main_process().with_context(|| format!("{unit}: its main process is unknown"))?;
    let main = main.with_context(|| {
        format!("{unit} does not run: start it, so that its program is known: systemctl start {unit}")
    })?;
    let jvm = jvm(root, unit, main)?;
    if jvm.is_none() {
        let exe = root.link(format!("proc/{main}/exe")).unwrap_or_default();
        let name = exe.file_name().unwrap_or_default().to_string_lossy();
        ensure!(
            !line::NAMES.contains(&&*name),
            "{unit} is a PostgreSQL server, whose huge_pages is an option and no variable: {of_postgres}"
        );
    }
    let exe = format!("proc/{}/exe", jvm.unwrap_or(main));
    let allocator = c_library::of_program(root, exe).ok().and_then(|of| of.allocator);
    let configured = UnitEnvironment::read(unit).map_err(anyhow::Error::msg)?;
    let mut channel = channel(root, unit)?;
    if jvm.is_some_and(|pid| has_page_flags(root, pid)) {
        channel = channel.map(|_| Channel::after_all());
    }
    let mut names =
        if jvm.is_some() { OPTION_VARIABLES.to_vec() } else { UnitProgram::MALLOC_VARIABLES.to_vec() };
    let own = channel.as_ref().map(|channel| channel.variable.as_str()).filter(|_| jvm.is_some());
    names.extend(own.filter(|own| !OPTION_VARIABLES.contains(own)));
    let mut environment = Vec::new();
    for name in names {
        let value = configured.value(name).map_err(|why| anyhow::anyhow!("{unit}: {why}"))?;
        environment.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }
    Ok(UnitProgram { unit: unit.clone(), is_jvm: jvm.is_some(), channel, allocator, environment })
}

/// The channel of the program in the configuration of a service; `None` if it is a script that leaves no variable.
fn channel(root: &Root, unit: &Unit) -> anyhow::Result<Option<Channel>> {
    let program = unit.program().with_context(|| format!("{unit}: its ExecStart is unknown"))?;
    Ok(program.map_or_else(|| Some(Channel::of_every_jvm()), |file| Launcher::channel_of_file(root, &file)))
}

/// The JVM of a service: its main process, or one that this has started as the same user.
fn jvm(root: &Root, unit: &Unit, main: u32) -> anyhow::Result<Option<u32>> {
    let user = |pid| users::of_process(root, pid).map_err(|why| anyhow::anyhow!("{unit}: {why}"));
    let of_main = user(main)?;
    let mut of_other = None;
    for pid in tree::processes(root, main).into_iter().filter(|pid| is_hotspot(root, *pid)) {
        match user(pid)? {
            uid if uid == of_main => return Ok(Some(pid)),
            uid => of_other = Some((pid, uid)),
        }
    }
    match of_other {
        Some((pid, uid)) => bail!(
            "{unit}: its main process {main} runs as uid {of_main}, and its JVM {pid} as uid {uid}; variables of the \
             unit would reach both: start the JVM as the user of the unit (User=)"
        ),
        None => Ok(None),
    }
}

/// Whether the command line of a JVM has flags about pages, which override those of most variables.
fn has_page_flags(root: &Root, pid: u32) -> bool {
    let text = root.read(format!("proc/{pid}/cmdline")).unwrap_or_default();
    let command: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
    // The files that it names are those of another user.
    let unread = |_: &str| Err(io::ErrorKind::Unsupported.into());
    let line = LaunchLine::parse(&command, &unread).and_then(Result::ok);
    line.is_some_and(|line| !line.with_page_flags(&[]).1.is_empty())
}
