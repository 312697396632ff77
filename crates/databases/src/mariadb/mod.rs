//! MariaDB: its settings and its demand, from rehearsals of its start in an empty temporary data folder.
//!
//! With `--large-pages` the server maps several buffers on pages of pools, each of the largest page size that is not
//! larger than the buffer and of whose pages there are enough. The server reads its options itself, with `--help`, so
//! that option files, prefixes and abbreviations count as they do at a real start. It is then started with
//! `--bootstrap` and those of the options that decide the buffers, and killed when it reads the first statement.

pub mod line;
mod regions;
mod variables;

use std::{
    env, io,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    time::Duration,
};

use hugewise_linux::{
    bounded_run, empty_folder,
    hugepages::page_sizes::PageSizes,
    proc::smaps::Vma,
    rehearsal::{self, Conditions, Ending, Placement, Rehearsal, SimulatedPools},
    root::Root,
    sys::process::{self, Program},
    units::{Bytes, PageSize},
    users::Account,
};
use tempfile::TempDir;

use self::{line::MariadbLine, variables::Variables};
use crate::program;

pub use regions::Region;

/// Time limit of one start; 0.1 to 1.3 s are usual.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Variables that the server gets; others may hold secrets of the caller.
const VARIABLES: [&str; 7] = ["PATH", "LANG", "LC_ALL", "TZ", "HOME", "LD_LIBRARY_PATH", "MYSQL_HOME"];
/// The user as whom root starts the server of a line without `--user`.
const USUAL_USER: &str = "mysql";
/// Makes the start quick: small files, nothing is synced, and no page of the buffer pool is read or written.
const QUICK: [&str; 6] = [
    "--loose-innodb-log-file-size=4M",
    "--loose-innodb-flush-method=nosync",
    "--loose-skip-innodb-doublewrite",
    "--loose-skip-innodb-use-native-aio",
    "--loose-skip-innodb-buffer-pool-load-at-startup",
    "--loose-skip-innodb-buffer-pool-dump-at-shutdown",
];
/// Maximum number of messages of one start.
const MAX_MESSAGES: usize = 6;
/// InnoDB starts its buffer pool at a multiple of this, and requests as much more memory as that takes.
///
/// Source: `innodb_buffer_pool_extent_size` of storage/innobase/include/buf0buf.h, for 64 bits.
const BUFFER_POOL_ALIGNMENT: Bytes = Bytes(8 << 20);

/// Why the demand of a server is unknown.
#[derive(Debug, thiserror::Error)]
pub enum MariadbError {
    #[error("the command line has no program")]
    NoProgram,
    #[error("{option} starts no server; give the command line of the server: mariadbd --datadir=FOLDER")]
    NotAServer { option: String },
    #[error(
        "mariadbd does not run as root, and this machine has no user {name}; name its user with --user=NAME"
    )]
    NoUser { name: String },
    #[error("cannot create a temporary data folder: {0}")]
    Folder(io::Error),
    #[error("{} could not be started under ptrace and seccomp, which the rehearsal needs: {source}", program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("{} was not ready within {} s", program.display(), TIME_LIMIT.as_secs())]
    TimedOut { program: PathBuf },
    #[error("{} reports version '{version}', which is not MariaDB's", program.display())]
    NotMariadb { program: PathBuf, version: String },
    #[error("{} does not start: {detail}", program.display())]
    Refused { program: PathBuf, detail: String },
}

/// Settings of a server that decide its huge pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Version without the packager's addition.
    pub version: String,
    /// `large_pages`: whether the server requests pages of pools.
    pub large_pages: bool,
    pub max_connections: u32,
    /// Sizes as configured; a buffer is a little smaller or larger.
    key_buffers: Vec<Bytes>,
    aria_pagecache: Bytes,
    log_buffer: Bytes,
}

/// A server that can be rehearsed.
#[derive(Clone, Debug)]
pub struct Server {
    program: PathBuf,
    pub settings: Settings,
    /// User as whom root starts the server; `None` without root.
    pub account: Option<Account>,
    /// Whether the options name the user.
    pub names_user: bool,
    /// Whether there are option files that root may read, and the user may not: their options do not count.
    pub has_unread_files: bool,
    /// Errors that it reports without its plugins, for example options of plugins.
    pub complaints: Vec<String>,
    /// Options that decide the buffers.
    options: Vec<String>,
}

/// A rehearsed start of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Whether it became ready.
    pub is_ready: bool,
    /// Buffers on pages of pools.
    pub regions: Vec<Region>,
    /// Warnings about missing pages, and errors.
    pub messages: Vec<String>,
}

impl Server {
    /// Reads the settings of the server of a command line.
    pub fn query(line: &MariadbLine, sizes: &PageSizes) -> Result<Server, MariadbError> {
        let program = program::find(&line.program)
            .map_err(|source| MariadbError::Start { program: PathBuf::from(&line.program), source })?;
        let of_files = options_of_files(&program, line, None)?;
        let all = [&of_files, &line.options[..]].concat();
        let user = line::user(&all);
        let account = account(user)?;
        // As the user, the server reads the files only that this user may read.
        let read =
            account.as_ref().map(|account| options_of_files(&program, line, Some(account))).transpose()?;
        let mut server = Server {
            program,
            settings: Settings::default(),
            account,
            names_user: user.is_some(),
            has_unread_files: read.is_some_and(|read| read != of_files),
            complaints: Vec::new(),
            options: Vec::new(),
        };
        let (variables, complaints) = server.variables(&line.options, sizes)?;
        let (defaults, _) = server.variables(&["--no-defaults".to_owned()], sizes)?;
        let version = variables.get("version").unwrap_or_default().to_owned();
        if variables != Variables::default() && !version.contains("MariaDB") {
            return Err(MariadbError::NotMariadb { program: server.program, version });
        }
        let named = line::named_key_caches(&all);
        let Some(settings) = Settings::of(&variables, &named) else {
            let detail = [complaints, vec!["it does not print the sizes of its buffers".to_owned()]].concat();
            return Err(MariadbError::Refused { program: server.program, detail: detail.join(" / ") });
        };
        (server.settings, server.complaints) = (settings, complaints);
        server.options = [variables.options_of_buffers(&defaults), named].concat();
        Ok(server)
    }

    /// Starts the server with `--large-pages` and simulated pools. The kernel picks the addresses of the buffers at
    /// random at each real start: there is one start for each multiple of the default huge page size that can lead to
    /// another demand.
    pub fn starts(&self, sizes: &PageSizes, pools: &SimulatedPools) -> Result<Vec<Start>, MariadbError> {
        let step = sizes.default_hugetlb.map_or(BUFFER_POOL_ALIGNMENT, PageSize::bytes);
        let count = (BUFFER_POOL_ALIGNMENT.0 / step.0).max(1);
        let offsets = (0..count).map(|n| Bytes(n * step.0));
        offsets.map(|offset| self.start(sizes, pools, Placement::Downwards { offset })).collect()
    }

    fn start(
        &self,
        sizes: &PageSizes,
        pools: &SimulatedPools,
        placement: Placement,
    ) -> Result<Start, MariadbError> {
        let folder = self.folder()?;
        let mut command = self.command(folder.path());
        command.args(["--no-defaults", "--bootstrap", "--large-pages"]).args(QUICK).args(&self.options);
        command.args([in_folder("datadir", folder.path()), in_folder("tmpdir", folder.path())]);
        command.current_dir(folder.path());
        let conditions =
            Conditions { sizes, pools, placement, ending: Ending::FirstRead, timeout: TIME_LIMIT };
        let rehearsal = self.rehearse(command, &conditions)?;
        Ok(Start {
            is_ready: rehearsal.is_stopped,
            regions: regions::regions(&rehearsal.requests, &self.settings, sizes),
            messages: messages(&rehearsal.stderr),
        })
    }

    /// The variables that the server prints with these options, and its errors. `--help` maps the buffers of MyISAM and
    /// Aria, and creates files in the data folder and in that of Aria's log.
    fn variables(
        &self,
        options: &[String],
        sizes: &PageSizes,
    ) -> Result<(Variables, Vec<String>), MariadbError> {
        let folder = self.folder()?;
        let mut command = self.command(folder.path());
        command.args(options);
        command
            .args([in_folder("datadir", folder.path()), in_folder("loose-aria-log-dir-path", folder.path())]);
        // No plugin is loaded; the server then complains about options of plugins, and prints the rest.
        command.args(["--plugin-load=", "--verbose", "--help"]);
        let conditions = Conditions {
            sizes,
            pools: &SimulatedPools::new(),
            placement: Placement::Upwards,
            ending: Ending::Exit,
            timeout: TIME_LIMIT,
        };
        let rehearsal = self.rehearse(command, &conditions)?;
        Ok((Variables::parse(&rehearsal.stdout), messages(&rehearsal.stderr)))
    }

    /// An empty folder of the server's user.
    fn folder(&self) -> Result<TempDir, MariadbError> {
        empty_folder::remove_unused();
        let folder =
            tempfile::Builder::new().prefix(empty_folder::PREFIX).tempdir().map_err(MariadbError::Folder)?;
        if let Some(account) = &self.account {
            let user = account.user;
            chown(folder.path(), Some(user.uid), Some(user.gid)).map_err(MariadbError::Folder)?;
        }
        Ok(folder)
    }

    /// The program, as the server's user.
    fn command(&self, folder: &Path) -> Program {
        let mut command = command(&self.program, self.account.as_ref());
        command.env("TMPDIR", folder);
        command
    }

    fn rehearse(&self, command: Program, conditions: &Conditions<'_>) -> Result<Rehearsal, MariadbError> {
        let program = || self.program.clone();
        rehearsal::rehearse(command, conditions).map_err(|source| match source.kind() {
            io::ErrorKind::TimedOut => MariadbError::TimedOut { program: program() },
            _ => MariadbError::Start { program: program(), source },
        })
    }
}

impl Settings {
    /// `None` if a variable is missing.
    fn of(variables: &Variables, named_key_caches: &[String]) -> Option<Settings> {
        let number = |name: &str| variables.get(name)?.parse::<u64>().ok();
        let named = named_key_caches.iter().filter_map(|option| option.split_once('='));
        let named = named.filter(|(name, _)| name.replace('-', "_").ends_with(".key_buffer_size"));
        let named = named.filter_map(|(_, size)| size.parse::<Bytes>().ok());
        Some(Settings {
            version: variables.get("version")?.split('-').next().unwrap_or_default().to_owned(),
            large_pages: variables.get("large-pages")? == "TRUE",
            max_connections: variables.get("max-connections")?.parse().ok()?,
            key_buffers: [Bytes(number("key-buffer-size")?)].into_iter().chain(named).collect(),
            aria_pagecache: Bytes(number("aria-pagecache-buffer-size")?),
            log_buffer: Bytes(number("innodb-log-buffer-size")?),
        })
    }
}

/// Whether a process with these mappings runs the server's program.
pub fn runs_in(vmas: &[Vma]) -> bool {
    program::runs_in(vmas, &line::NAMES)
}

/// The program, as the server's user, or as the user of this process.
fn command(program: &Path, account: Option<&Account>) -> Program {
    let mut command = Program::new(program);
    command.env_clear();
    // Also `HOME`, whose option file is read before the server changes its user.
    command.envs(VARIABLES.iter().filter_map(|name| Some((name, env::var_os(name)?))));
    if let Some(account) = account {
        command.as_user(account);
    }
    command
}

/// The options that the server reads from its option files, as this user, or as the user of this process.
fn options_of_files(
    program: &Path,
    line: &MariadbLine,
    account: Option<&Account>,
) -> Result<Vec<String>, MariadbError> {
    let mut command = command(program, account);
    command.args(line.of_option_files()).arg("--print-defaults");
    let start = |source| MariadbError::Start { program: program.to_owned(), source };
    let printed = bounded_run::run_with_timeout(command, TIME_LIMIT)
        .map_err(start)?
        .ok_or_else(|| MariadbError::TimedOut { program: program.to_owned() })?;
    if !printed.status.success() {
        let detail = printed.stderr.lines().take(MAX_MESSAGES).collect::<Vec<_>>().join(" / ");
        return Err(MariadbError::Refused { program: program.to_owned(), detail });
    }
    let words = printed.stdout.lines().skip(1).flat_map(str::split_whitespace);
    Ok(words.map(str::to_owned).collect())
}

/// The user as whom root starts the server; `None` without root.
fn account(user: Option<&str>) -> Result<Option<Account>, MariadbError> {
    if !process::is_root() {
        return Ok(None);
    }
    let name = user.unwrap_or(USUAL_USER);
    let root = Root::live();
    let uid = name.parse().ok();
    let found = Account::named(&root, name).or_else(|| Account::of_uid(&root, uid?));
    found.map(Some).ok_or_else(|| MariadbError::NoUser { name: name.to_owned() })
}

fn in_folder(option: &str, folder: &Path) -> String {
    format!("--{option}={}", folder.display())
}

/// Errors, and warnings about missing pages, without their times.
fn messages(stderr: &str) -> Vec<String> {
    let text = |line: &'_ str| {
        let at = ["[ERROR]", "[Warning]"].iter().find_map(|severity| line.find(severity))?;
        let text = &line[at..];
        (text.starts_with("[ERROR]") || text.contains("HugeTLB")).then(|| text.to_owned())
    };
    stderr.lines().filter_map(text).take(MAX_MESSAGES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_and_missing_pages_are_messages() {
        let stderr = "\
2026-11-26 10:26:48 0 [Warning] Could not increase number of max_open_files to more than 20000 (request: 32184)
2026-11-26 10:26:48 0 [Warning] mariadbd: Couldn't allocate 130023424 bytes (Large/HugeTLB memory page size 2097152)
2026-11-26 10:26:48 0 [Note] InnoDB: Using io_uring
2026-11-26 10:26:50 0 [ERROR] Aborting
";
        assert_eq!(
            messages(stderr),
            [
                "[Warning] mariadbd: Couldn't allocate 130023424 bytes (Large/HugeTLB memory page size 2097152)",
                "[ERROR] Aborting"
            ]
        );
    }
}
