//! The command line of a running JVM or database server, from its words and environment.

use std::{env, fs, os::unix::fs::MetadataExt, path::Path};

use anyhow::{Context, bail, ensure};
use hugewise_databases::{mariadb, postgres};
use hugewise_jvm::{launch::OPTION_VARIABLES, regions};
use hugewise_linux::{
    facts::Facts,
    proc::{
        process::Process,
        smaps::{self, Vma},
        tree,
    },
    reading::Reading,
    root::Root,
    sys::process::effective_uid,
    units::{Bytes, PageSize, Pages},
    users,
};

/// The data folder of PostgreSQL.
const PGDATA: &str = "PGDATA";

/// A program that runs, and is planned for.
pub struct RunningProgram {
    /// Its command line, behind the words that give it its environment, folder and CPUs.
    pub command: Vec<String>,
    pub notes: Vec<String>,
    /// Mappings on pages of pools, which it gives back at its end; of PostgreSQL none, whose plan reads them.
    held: Vec<Vma>,
}

impl RunningProgram {
    /// Reads the JVM or the database server of process `pid`, or the one that it has started.
    pub fn read(root: &Root, pid: u32) -> anyhow::Result<RunningProgram> {
        let given = Process::read(root, pid)?;
        let mappings = |pid: u32| smaps::read(root, &pid.to_string());
        mappings(pid).map_err(|error| given.explain(root, &error))?;
        let all: Vec<(u32, Vec<Vma>)> = tree::processes(root, pid)
            .into_iter()
            .filter_map(|pid| Some((pid, mappings(pid).ok()?)))
            .collect();
        // The first process of a server has the command line; the others are its children.
        let runs_server = |vmas: &[Vma]| postgres::runs_in(vmas) || mariadb::runs_in(vmas);
        let server = all.first().filter(|(_, vmas)| runs_server(vmas));
        let is_jvm = |(pid, _): &&(u32, Vec<Vma>)| regions::is_hotspot(root, *pid);
        let jvms: Vec<&(u32, Vec<Vma>)> = all.iter().filter(is_jvm).collect();
        let (pid, vmas, kind) = match (server, &jvms[..]) {
            (Some((pid, vmas)), _) => (*pid, vmas, "server"),
            (None, [(pid, vmas)]) => (*pid, vmas, "JVM"),
            (None, []) => {
                bail!(
                    "process {pid} ({}) is neither a JVM nor a PostgreSQL or MariaDB server, and has started none: the pages that \
                     another program needs are not known; its memory: hugewise inspect {pid}",
                    given.name
                )
            }
            (None, several) => {
                let pids: Vec<String> = several.iter().map(|(pid, _)| pid.to_string()).collect();
                bail!(
                    "process {pid} ({}) has several JVMs, {}: name one of them",
                    given.name,
                    pids.join(", ")
                )
            }
        };
        let process = Process::read(root, pid)?;
        check_owner(root, &process)?;
        check_root(root, &process)?;
        let mut found = RunningProgram { command: command(root, pid)?, notes: Vec::new(), held: Vec::new() };
        if !postgres::runs_in(vmas) {
            let is_held = |vma: &&Vma| vma.is_hugetlb && !vma.permissions.starts_with("---");
            found.held = vmas.iter().filter(is_held).cloned().collect();
            found.notes.push(format!(
                "this {kind} runs as process {pid}: its pool pages count as available after its end"
            ));
        }
        let group = |pid: &str| root.read(format!("proc/{pid}/cgroup")).ok();
        if group(&pid.to_string()) != group("self") {
            found.notes.push(format!(
                "process {pid} is in another control group than this command: the plan has the limits of this one"
            ));
        }
        Ok(found)
    }

    /// Counts the pages that it holds as available.
    pub fn give_back(&self, facts: &mut Facts) {
        let Reading::Known(pools) = &mut facts.pools else { return };
        for pool in pools.iter_mut().filter(|pool| pool.node.is_none()) {
            let is_of_pool = |vma: &&Vma| PageSize::new(vma.kernel_page_size).ok() == Some(pool.page_size);
            let size = |vma: &Vma| Bytes(vma.addresses.end - vma.addresses.start);
            let held: Pages =
                self.held.iter().filter(is_of_pool).map(|vma| size(vma).pages_needed(pool.page_size)).sum();
            if held > Pages(0) {
                // Its pages that were never touched are reserved, and not used.
                pool.free = (pool.available() + held).min(pool.total);
                pool.reserved = Some(Pages(0));
            }
        }
    }
}

/// A plan starts the program again to query it. Its user chose the file and the options, which could be hostile.
fn check_owner(root: &Root, process: &Process) -> anyhow::Result<()> {
    let own = effective_uid();
    let pid = process.pid;
    let uid = users::of_process(root, pid).map_err(anyhow::Error::msg)?;
    ensure!(
        uid == own,
        "process {pid} ({}) belongs to uid {uid}, and hugewise runs as uid {own}: a plan starts the program again, so \
         make it as the user of the process: sudo -u '#{uid}' hugewise plan --pid {pid}",
        process.name
    );
    Ok(())
}

/// The paths of its words are those of its own root folder: here they may name files of another user.
fn check_root(root: &Root, process: &Process) -> anyhow::Result<()> {
    let pid = process.pid;
    let root_of = |path: String| fs::metadata(root.path(path)).map(|found| (found.dev(), found.ino()));
    let its = root_of(format!("proc/{pid}/root"))
        .with_context(|| format!("cannot read the root folder of process {pid}; try sudo"))?;
    ensure!(
        its == root_of("proc/self/root".to_owned())?,
        "process {pid} ({}) is in a container, or has another root folder: its command line names other files here; run \
         hugewise in the container",
        process.name
    );
    Ok(())
}

/// The words that start process `pid` again from here.
fn command(root: &Root, pid: u32) -> anyhow::Result<Vec<String>> {
    let folder = format!("proc/{pid}");
    let link = |name: &str| {
        root.link(format!("{folder}/{name}"))
            .with_context(|| format!("cannot read what process {pid} runs; try sudo"))
    };
    let (program, here) = (link("exe")?, link("cwd")?);
    let is_here = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    ensure!(
        is_here(&program).is_some() && is_here(&program) == is_here(&root.path(format!("{folder}/exe"))),
        "process {pid} runs {}, which is another file here: it is in a container, or its package was updated; run \
         hugewise in the container, or start the process anew",
        program.display()
    );
    let text = |name: &str| {
        let text = root.read(format!("{folder}/{name}"));
        text.with_context(|| format!("cannot read the {name} of process {pid}; try sudo"))
    };
    let (words, environment) = (text("cmdline")?, text("environ")?);
    let own = |name: &str| {
        let of = |entry: &str| entry.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
        environment.split('\0').find_map(of)
    };
    let mut env_words = Vec::new();
    let mut assignments = Vec::new();
    for name in OPTION_VARIABLES.into_iter().chain([PGDATA]) {
        match own(name) {
            value if value == env::var(name).ok() => {}
            Some(value) => assignments.push(format!("{name}={value}")),
            None => env_words.extend(["-u".to_owned(), name.to_owned()]),
        }
    }
    if env::current_dir().ok().as_ref() != Some(&here) {
        env_words.extend(["-C".to_owned(), here.to_string_lossy().into_owned()]);
    }
    env_words.extend(assignments);
    let mut command = Vec::new();
    if !env_words.is_empty() {
        command.push("env".to_owned());
        command.extend(env_words);
    }
    let cpus = |pid: &str| {
        let status = root.read(format!("proc/{pid}/status")).ok()?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(list.trim().to_owned())
    };
    if let Some(list) = cpus(&pid.to_string()).filter(|list| cpus("self").as_ref() != Some(list)) {
        command.extend(["taskset".to_owned(), "-c".to_owned(), list]);
    }
    command.push(program.to_string_lossy().into_owned());
    command.extend(words.split_terminator('\0').skip(1).map(str::to_owned));
    Ok(command)
}
