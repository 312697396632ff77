//! The one place that starts programs, as this user or as another one.

use std::{
    env,
    ffi::{CString, OsStr, OsString},
    io,
    os::{
        fd::{AsRawFd, RawFd},
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::Path,
    process::{Child, Command, Stdio},
};

use super::{
    super::{file, pidfd},
    GroupLeader, orphans,
    preparation::{Identity, Place, Preparation},
};
use crate::users::Account;

/// Folders of the programs that Hugewise chooses itself; only root writes there.
const SYSTEM_FOLDERS: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
/// Variables that a program of another user, or of the system, inherits, besides those that begin with `LC_`. Others
/// may hold secrets of the caller.
const INHERITED: [&str; 5] = ["PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH"];

/// A program to start: like [`Command`], but for the place where its user changes.
#[derive(Debug)]
pub struct Program {
    command: Command,
    /// Standard input, output and error; `None` for those of this process, or none if the user is another one.
    streams: [Option<Stdio>; 3],
    account: Option<Account>,
    has_clean_environment: bool,
    thp_disabled: bool,
    closes_files: bool,
    kept: Vec<RawFd>,
}

impl Program {
    /// The program of the user's words: a path, or a name that is found through `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Program {
        Program {
            command: Command::new(program),
            streams: [const { None }; 3],
            account: None,
            has_clean_environment: false,
            thp_disabled: false,
            closes_files: false,
            kept: Vec::new(),
        }
    }

    /// A tool of the system, such as `systemctl`, from the system's own folders, with a clean environment and without
    /// inherited files.
    pub fn of_system(name: &str) -> io::Result<Program> {
        let mut paths = SYSTEM_FOLDERS.iter().map(|folder| Path::new(folder).join(name));
        let found = paths.find(|path| path.is_file());
        let missing = || {
            let said = format!("{name} is not in {}", SYSTEM_FOLDERS.join(", "));
            io::Error::new(io::ErrorKind::NotFound, said)
        };
        let mut program = Program::new(found.ok_or_else(missing)?);
        program.env("PATH", SYSTEM_FOLDERS.join(":")).env_remove("LD_LIBRARY_PATH");
        (program.has_clean_environment, program.closes_files) = (true, true);
        Ok(program)
    }

    /// This program, once more.
    pub fn itself() -> Program {
        Program::new("/proc/self/exe")
    }

    /// The name by which it is started (`argv[0]`), in place of its path.
    pub fn named(&mut self, name: impl AsRef<OsStr>) -> &mut Program {
        self.command.arg0(name);
        self
    }

    pub fn arg(&mut self, argument: impl AsRef<OsStr>) -> &mut Program {
        self.command.arg(argument);
        self
    }

    pub fn args(&mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Program {
        self.command.args(arguments);
        self
    }

    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Program {
        self.command.env(name, value);
        self
    }

    pub fn envs(
        &mut self,
        variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> &mut Program {
        self.command.envs(variables);
        self
    }

    pub fn env_remove(&mut self, name: impl AsRef<OsStr>) -> &mut Program {
        self.command.env_remove(name);
        self
    }

    /// Removes all variables, also those that were set here.
    pub fn env_clear(&mut self) -> &mut Program {
        self.command.env_clear();
        self
    }

    /// Where it starts; as another user, if that user may enter it, and else in `/`.
    pub fn current_dir(&mut self, folder: impl AsRef<Path>) -> &mut Program {
        self.command.current_dir(folder);
        self
    }

    pub fn stdin(&mut self, stream: impl Into<Stdio>) -> &mut Program {
        self.streams[0] = Some(stream.into());
        self
    }

    pub fn stdout(&mut self, stream: impl Into<Stdio>) -> &mut Program {
        self.streams[1] = Some(stream.into());
        self
    }

    pub fn stderr(&mut self, stream: impl Into<Stdio>) -> &mut Program {
        self.streams[2] = Some(stream.into());
        self
    }

    /// Starts it as this user, without anything of the present one: with the groups of that user, in a session without
    /// a terminal, without open files other than its standard ones, unable to gain privileges, and with `PATH`, the
    /// language and the time zone of the caller as its only variables besides those that are set here.
    pub fn as_user(&mut self, account: &Account) -> &mut Program {
        self.account = Some(account.clone());
        self
    }

    /// Gives it and its descendants no THP (`PR_SET_THP_DISABLE`), regardless of the machine's THP mode.
    pub fn thp_disabled(&mut self, disabled: bool) -> &mut Program {
        self.thp_disabled = disabled;
        self
    }

    /// Closes all files but its standard ones.
    pub fn without_files(&mut self) -> &mut Program {
        self.closes_files = true;
        self
    }

    /// Keeps a file open in it, under the same number. The file must be open at the start.
    pub fn keep(&mut self, file: &impl AsRawFd) -> &mut Program {
        self.kept.push(file.as_raw_fd());
        self
    }

    pub fn name(&self) -> String {
        self.command.get_program().to_string_lossy().into_owned()
    }

    /// Starts it as the leader of a process group. It is killed if this process dies.
    ///
    /// The calling thread must outlive it: the kernel ties the death signal to the thread.
    pub fn start(self) -> io::Result<GroupLeader> {
        let child = self.spawn(Place::Group, Life::OfStarter, None)?;
        Ok(GroupLeader::of(child.id()))
    }

    /// Starts it in the process group and on the terminal of this process, which it outlives.
    pub fn start_in_foreground(self) -> io::Result<Child> {
        self.spawn(Place::OfStarter, Life::Own, None)
    }

    /// Starts it as the leader of a process group. It outlives this process.
    pub fn start_survivor(self) -> io::Result<Child> {
        self.spawn(Place::Group, Life::Own, None)
    }

    /// Starts it as an orphan in a session of its own, so that it is not a child of this process.
    ///
    /// Its standard input is a pidfd of this process, which stays valid if the pid is reused. ENOSYS before Linux 5.3.
    pub fn start_orphan(mut self) -> io::Result<()> {
        self.stdin(pidfd::open(std::process::id())?).current_dir("/");
        self.spawn(Place::Session, Life::Orphan, None)?.wait().map(drop)
    }

    /// Starts it under a seccomp filter, traced by the calling thread (`PTRACE_TRACEME`).
    pub(in super::super) fn start_traced(self, filter: Vec<libc::sock_filter>) -> io::Result<Child> {
        self.spawn(Place::Group, Life::OfStarter, Some(filter))
    }

    fn spawn(
        mut self,
        place: Place,
        life: Life,
        filter: Option<Vec<libc::sock_filter>>,
    ) -> io::Result<Child> {
        let is_other_user = self.account.is_some();
        let identity = self.account.as_ref().map(|account| {
            let folder = self.command.get_current_dir().map(Path::to_owned);
            let folder = folder.or_else(|| env::current_dir().ok()).unwrap_or_else(|| "/".into());
            let folder = std::path::absolute(folder).unwrap_or_else(|_| "/".into());
            Ok::<_, io::Error>(Identity::new(account, CString::new(folder.as_os_str().as_bytes())?))
        });
        let mut preparation = Preparation {
            place: if is_other_user { Place::Session } else { place },
            is_orphan: life == Life::Orphan,
            dies_with: (life == Life::OfStarter).then(std::process::id),
            identity: identity.transpose()?,
            thp_disabled: self.thp_disabled,
            closed: (is_other_user || self.closes_files).then(open_descriptors).transpose()?,
            kept: self.kept,
            filter,
        };
        if is_other_user || self.has_clean_environment {
            clean_environment(&mut self.command, self.account.as_ref());
        }
        let set = [Command::stdin, Command::stdout, Command::stderr];
        for (set, stream) in set.into_iter().zip(self.streams) {
            if let Some(stream) = stream.or_else(|| is_other_user.then(Stdio::null)) {
                set(&mut self.command, stream);
            }
        }
        // SAFETY: the closure runs between fork and exec.
        let child = unsafe { self.command.pre_exec(move || preparation.run()) }.spawn()?;
        orphans::note_start(child.id());
        Ok(child)
    }
}

/// When a program ends, at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// With its starter.
    OfStarter,
    /// It outlives its starter.
    Own,
    /// It outlives its starter, of which it is not a child.
    Orphan,
}

/// Removes all variables but those that were set for this program, and a list of the caller's.
fn clean_environment(command: &mut Command, account: Option<&Account>) {
    let given: Vec<(OsString, Option<OsString>)> =
        command.get_envs().map(|(name, value)| (name.to_owned(), value.map(OsStr::to_owned))).collect();
    let is_inherited = |name: &OsStr| {
        INHERITED.iter().any(|inherited| name == *inherited) || name.as_bytes().starts_with(b"LC_")
    };
    command.env_clear().envs(env::vars_os().filter(|(name, _)| is_inherited(name)));
    if let Some(account) = account {
        command.env("HOME", &account.home).env("USER", &account.name).env("LOGNAME", &account.name);
    }
    for (name, value) in given {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// The descriptors of this process.
fn open_descriptors() -> io::Result<Vec<RawFd>> {
    let names = file::names(Path::new("/proc/self/fd"))?;
    Ok(names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect())
}
