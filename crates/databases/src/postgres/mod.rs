//! PostgreSQL: its settings and its demand, from `postgres -C` with the options of the command line.
//!
//! `-C` prints one setting and ends. For `shared_memory_size_in_huge_pages` the server computes its shared memory
//! first: it locks the data folder for that time, so it must not run, and loads the extensions of
//! `shared_preload_libraries`, which may request shared memory.

pub mod line;
mod running;

use std::{
    env, io,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use hugewise_linux::{
    bounded_run,
    root::Root,
    sys::process::Program,
    units::{Bytes, PageSize, Pages},
};

use self::line::PostgresLine;
use crate::{
    data_folder::{DataFolder, FolderError},
    program::find,
};

pub use running::{RunningServer, runs_in, shared_memory};

/// Time limit of one question; a server answers in 40 ms.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// Variables that the server gets; others may hold secrets of the caller.
const VARIABLES: [&str; 7] = ["PATH", "LANG", "LC_ALL", "LC_MESSAGES", "TZ", "LD_LIBRARY_PATH", "PGTZ"];
/// The key may be readable for a supplementary group of the owner only, and a program may print its passphrase.
const WITHOUT_TLS: [&str; 2] = ["-c", "ssl=off"];
/// Lines of the server's messages that an error contains.
const MAX_MESSAGES: usize = 3;

/// Why the demand of a server is unknown.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    #[error("{option} starts no server; give the command line of the server: postgres -D FOLDER")]
    NotAServer { option: String },
    #[error("the data folder is unknown; name it with -D FOLDER or PGDATA")]
    NoFolder,
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("{} could not be started: {source}", program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("{} -C {setting} did not end within {} s", program.display(), TIME_LIMIT.as_secs())]
    TimedOut { program: PathBuf, setting: String },
    #[error("{} -C {setting} fails: {detail}", program.display())]
    Refused { program: PathBuf, setting: String, detail: String },
    #[error("{} -C {setting} prints '{value}'", program.display())]
    Unexpected { program: PathBuf, setting: String, value: String },
    #[error(
        "PostgreSQL {version} does not report the pages of its shared memory (15 and later do); start it once with \
         -c huge_pages=off: 'hugewise inspect PID' of its first process shows the size of the shared memory"
    )]
    TooOld { version: String },
}

/// Value of `huge_pages`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    Off,
    /// Pages of a pool if it has enough of them, otherwise base pages without a message.
    Try,
    /// Pages of a pool; the server does not start without them.
    On,
}

impl HugePages {
    pub fn name(self) -> &'static str {
        match self {
            HugePages::Off => "off",
            HugePages::Try => "try",
            HugePages::On => "on",
        }
    }
}

impl FromStr for HugePages {
    type Err = ();
    fn from_str(text: &str) -> Result<HugePages, ()> {
        [HugePages::Off, HugePages::Try, HugePages::On]
            .into_iter()
            .find(|value| value.name() == text)
            .ok_or(())
    }
}

/// Settings of a server that decide its huge pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `server_version`, without the packager's addition.
    pub version: String,
    pub huge_pages: HugePages,
    /// `huge_page_size`; `None` for the machine's default.
    pub huge_page_size: Option<PageSize>,
    /// Whether the shared memory is one `mmap`, which can be on huge pages (`shared_memory_type`).
    pub is_mapped: bool,
    pub max_connections: u32,
}

/// A server that can be queried.
#[derive(Clone, Debug)]
pub struct Server {
    program: PathBuf,
    options: Vec<String>,
    /// The folder of `-D`.
    configuration: PathBuf,
    pub data: DataFolder,
    pub settings: Settings,
}

impl Server {
    /// Reads the settings of the server of a command line.
    pub fn query(line: &PostgresLine) -> Result<Server, PostgresError> {
        let program = find(&line.program)
            .map_err(|source| PostgresError::Start { program: PathBuf::from(&line.program), source })?;
        let data = DataFolder::open(Path::new(&line.folder))?;
        let mut server = Server {
            program,
            options: line.options.clone(),
            configuration: data.path.clone(),
            data,
            settings: Settings {
                version: String::new(),
                huge_pages: HugePages::Off,
                huge_page_size: None,
                is_mapped: false,
                max_connections: 0,
            },
        };
        // A folder of configuration files names the data folder.
        let folder: PathBuf = server.parsed("data_directory")?;
        server.data = server.data.named_here(DataFolder::open(&folder)?)?;
        let version = server.value("server_version", &[])?;
        let size_kib: u64 = server.parsed("huge_page_size")?;
        let huge_page_size = match size_kib {
            0 => None,
            kib => Some(
                PageSize::new(Bytes::from_kib(kib))
                    .map_err(|_| server.unexpected("huge_page_size", &kib.to_string()))?,
            ),
        };
        let huge_pages = server.value("huge_pages", &[])?;
        server.settings = Settings {
            version: version.split(' ').next().unwrap_or_default().to_owned(),
            huge_pages: huge_pages.parse().map_err(|()| server.unexpected("huge_pages", &huge_pages))?,
            huge_page_size,
            is_mapped: server.value("shared_memory_type", &[])? == "mmap",
            max_connections: server.parsed("max_connections")?,
        };
        Ok(server)
    }

    /// Pages of `size` that the shared memory of this server takes. Fails while the server runs.
    pub fn pages(&self, size: PageSize) -> Result<Pages, PostgresError> {
        let major: u32 = self
            .settings
            .version
            .split(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap_or_default()
            .parse()
            .unwrap_or(u32::MAX);
        if major < 15 {
            return Err(PostgresError::TooOld { version: self.settings.version.clone() });
        }
        let size = format!("huge_page_size={}kB", size.bytes().0 >> 10);
        let name = "shared_memory_size_in_huge_pages";
        let pages = self.value(name, &["-c", &size])?;
        pages.parse().map(Pages).map_err(|_| self.unexpected(name, &pages))
    }

    /// The running server of this data folder; `None` if none runs.
    pub fn running(&self, root: &Root) -> Option<RunningServer> {
        running::find(root, &self.data)
    }

    fn parsed<T: FromStr>(&self, setting: &str) -> Result<T, PostgresError> {
        let value = self.value(setting, &[])?;
        value.parse().map_err(|_| self.unexpected(setting, &value))
    }

    fn unexpected(&self, setting: &str, value: &str) -> PostgresError {
        PostgresError::Unexpected {
            program: self.program.clone(),
            setting: setting.to_owned(),
            value: value.to_owned(),
        }
    }

    /// The value of a setting, as the owner of the data folder.
    fn value(&self, setting: &str, more: &[&str]) -> Result<String, PostgresError> {
        let (program, setting_of) = (|| self.program.clone(), || setting.to_owned());
        let mut command = Program::new(&self.program);
        command.args(["-C", setting]).args(&self.options).args(more).args(WITHOUT_TLS);
        command.arg("-D").arg(&self.configuration);
        command.env_clear();
        command.envs(VARIABLES.iter().filter_map(|name| Some((name, env::var_os(name)?))));
        if let Some(owner) = &self.data.owner {
            // The server does not start in a folder that its user cannot read.
            command.as_user(owner).current_dir("/");
        }
        let printed = bounded_run::run_with_timeout(command, TIME_LIMIT)
            .map_err(|source| PostgresError::Start { program: program(), source })?
            .ok_or_else(|| PostgresError::TimedOut { program: program(), setting: setting_of() })?;
        if !printed.status.success() {
            // A prefix of the configuration precedes the severity.
            let message = |line: &'_ str| line.find("FATAL:").map_or(0, |at| at);
            let lines = printed.stderr.lines().map(|line| line[message(line)..].trim());
            let lines = lines.filter(|line| !line.is_empty());
            let detail = lines.take(MAX_MESSAGES).collect::<Vec<_>>().join(" / ");
            return Err(PostgresError::Refused { program: program(), setting: setting_of(), detail });
        }
        Ok(printed.stdout.trim().to_owned())
    }
}
