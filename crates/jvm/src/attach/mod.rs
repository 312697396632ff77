//! HotSpot's attach protocol, as used by `jcmd`.
//!
//! If the file `.attach_pidN` exists, SIGQUIT starts the JVM's attach listener, which serves the socket
//! `.java_pidN`. Without that file, or with attach disabled, SIGQUIT would print a thread dump to the
//! application's output, or end the process. It is sent only if neither can happen. N is the process ID in
//! the process' own PID namespace; both files are in the process' own directories.
//!
//! The process may be hostile, or not answer: one deadline holds for all of a conversation, and after the first question
//! without an answer no other is asked. Lookups in its directories may wait for its file system without an end, so that
//! callers attach in a process aside ([`hugewise_linux::sys::aside`]). A process that is stopped is not connected to:
//! the connection would stay in its queue, which has few places.

#[cfg(test)]
mod tests;

use std::{
    cell::{Cell, RefCell},
    fs::{self, File},
    io,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{FileTypeExt, MetadataExt},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use hugewise_linux::{
    proc::{halted, smaps},
    reading::Reason,
    root::Root,
    sys::{
        aside::Deadline,
        conversation,
        file::{self, inside},
        process,
    },
};

use crate::regions::jvm::flag_is_set;

/// Longest time until a JVM opens its socket; a long time to safepoint delays it.
const SOCKET_TIME_LIMIT: Duration = Duration::from_secs(5);
/// Longest conversation with a JVM: the limit of its answers together.
pub const TIME_LIMIT: Duration = Duration::from_secs(15);
/// Largest answer, in bytes: the memory map of a process with 10,000 threads has a few megabytes.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// `SigCgt` has signal n at bit n - 1.
const SIGQUIT_BIT: u64 = 1 << 2;
/// The thread that handles SIGQUIT; the kernel keeps 15 bytes of its name.
const DISPATCHER: &str = "Signal Dispatch";
const NO_ATTACH: &str = "DisableAttachMechanism";

/// A JVM with an open attach socket.
#[derive(Debug)]
pub struct Jvm<'a> {
    root: &'a Root,
    /// Of the whole conversation.
    deadline: Deadline<'a>,
    pid: u32,
    /// Effective user id of the process.
    owner: u32,
    /// The process' /tmp.
    folder: File,
    /// Name of the socket in `folder`.
    socket: String,
    /// The connection that showed that the JVM listens, for the first question.
    connected: RefCell<Option<UnixStream>>,
    /// Whether a question was not answered.
    is_silent: Cell<bool>,
}

/// Why a JVM could not be queried.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Not attached, because it could disturb the process.
    #[error("not attaching to process {pid}: {reason}")]
    Refused { pid: u32, reason: String },
    /// The system refused a step.
    #[error("attaching to process {pid}: {step}: {source}")]
    Io {
        pid: u32,
        /// The attempted step.
        step: String,
        source: io::Error,
    },
    /// The JVM did not open its socket in time.
    #[error("attaching to process {0}: it opened no socket in time; it may be busy")]
    NoSocket(u32),
    /// A question was not answered, or one before it was not. The JVM may still do what it was asked.
    #[error("process {pid} did not answer '{command}': {reason}")]
    NoAnswer {
        pid: u32,
        command: String,
        reason: String,
        /// Whether the whole question was sent.
        asked: bool,
    },
    /// The JVM refused the command.
    #[error("process {pid} answered '{command}' with status {status}: {text}")]
    Answer {
        pid: u32,
        command: String,
        /// Status that the JVM returned; `0` is success.
        status: String,
        /// First line of the answer.
        text: String,
    },
}

impl AttachError {
    /// Whether the JVM may still follow a command with this beginning, which it has not answered.
    pub fn may_follow(&self, beginning: &str) -> bool {
        matches!(self, AttachError::NoAnswer { command, asked: true, .. } if command.starts_with(beginning))
    }
}

/// Fields of /proc/PID/status that attaching needs.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    effective_uid: u32,
    /// Process ID in the innermost PID namespace.
    own_pid: u32,
    catches_quit: bool,
}

impl<'a> Jvm<'a> {
    /// Connects to the JVM in process `pid`; starts its attach listener if necessary. The conversation ends at
    /// `deadline`.
    pub fn connect(root: &'a Root, pid: u32, deadline: Deadline<'a>) -> Result<Jvm<'a>, AttachError> {
        let refused = |reason: String| AttachError::Refused { pid, reason };
        if !root.is_live() {
            return Err(refused("a captured tree has no running process".to_owned()));
        }
        let status = status(root, pid).map_err(|reason| refused(reason.into()))?;
        let ours = process::effective_uid();
        if ours != status.effective_uid && ours != 0 {
            let theirs = status.effective_uid;
            return Err(refused(format!(
                "it runs as uid {theirs}, and hugewise as uid {ours}; run hugewise as that user or as root"
            )));
        }
        if let Some(reason) = halted::reason(root, pid) {
            return Err(refused(reason.to_owned()));
        }
        // A symbolic link in a container could lead outside of it.
        let folder = inside::directory(&root.path(format!("proc/{pid}/root")), Path::new("tmp"))
            .map_err(|error| refused(format!("its /tmp is not an accessible directory: {error}")))?;
        let owner = status.effective_uid;
        let socket = format!(".java_pid{}", status.own_pid);
        let jvm = Jvm {
            root,
            deadline,
            pid,
            owner,
            folder,
            socket,
            connected: RefCell::default(),
            is_silent: Cell::default(),
        };
        if jvm.is_listening()? {
            return Ok(jvm);
        }
        check_attachable(root, pid).map_err(|reason| refused(reason.into()))?;
        let name = format!(".attach_pid{}", status.own_pid);
        let _request = AttachFile::create(
            pid,
            [root.path(format!("proc/{pid}/cwd")).join(&name), jvm.folder().join(&name)],
        )?;
        process::quit_process(pid, || check_attachable(root, pid).is_ok())
            .map_err(|source| AttachError::Io { pid, step: "SIGQUIT".to_owned(), source })?;
        let until = deadline.at_most(SOCKET_TIME_LIMIT);
        let mut pause = Duration::from_millis(5);
        while let Ok(left) = until.left() {
            thread::sleep(pause.min(left));
            if let Some(reason) = halted::reason(root, pid) {
                return Err(refused(reason.to_owned()));
            }
            if jvm.is_listening()? {
                return Ok(jvm);
            }
            pause = (pause * 2).min(Duration::from_millis(200));
        }
        Err(AttachError::NoSocket(pid))
    }

    /// The answer to a diagnostic command, as `jcmd PID COMMAND` prints it.
    pub fn command(&self, command: &str) -> Result<String, AttachError> {
        let asked = Cell::new(false);
        let failed = |source: io::Error| AttachError::NoAnswer {
            pid: self.pid,
            command: command.to_owned(),
            reason: source.to_string(),
            asked: asked.get(),
        };
        let answer = self.converse(command, &asked).map_err(failed)?;
        let answer = String::from_utf8_lossy(&answer);
        let (status, text) = answer.split_once('\n').unwrap_or((&answer, ""));
        if status != "0" {
            return Err(AttachError::Answer {
                pid: self.pid,
                command: command.to_owned(),
                status: status.chars().take(20).collect(),
                text: text.lines().next().unwrap_or_default().chars().take(200).collect(),
            });
        }
        Ok(text.to_owned())
    }

    /// Whether the JVM has not answered a question.
    pub fn is_silent(&self) -> bool {
        self.is_silent.get()
    }

    fn converse(&self, command: &str, asked: &Cell<bool>) -> io::Result<Vec<u8>> {
        if command.contains('\0') {
            let error = "a command must not contain a zero byte";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        if self.is_silent() {
            return Err(io::Error::other("it has not answered the question before"));
        }
        let answer = self.ask(command, asked);
        self.is_silent.set(answer.is_err());
        answer
    }

    fn ask(&self, command: &str, asked: &Cell<bool>) -> io::Result<Vec<u8>> {
        let goes_on =
            || halted::reason(self.root, self.pid).map_or(Ok(()), |reason| Err(io::Error::other(reason)));
        goes_on()?;
        let connected = self.connected.take();
        let stream = connected.map_or_else(|| self.stream(), Ok)?;
        // Protocol version, operation, and its three arguments.
        let question = format!("1\0jcmd\0{command}\0\0\0");
        conversation::send(&stream, question.as_bytes(), &self.deadline)?;
        asked.set(true);
        conversation::receive(&stream, MAX_ANSWER_BYTES, &self.deadline, goes_on)
    }

    /// The path of the JVM's /tmp, whatever its file system contains now.
    fn folder(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()))
    }

    /// A connection to the JVM's socket. Fails if the socket does not belong to the process' user.
    fn stream(&self) -> io::Result<UnixStream> {
        // Connecting by name could follow a link.
        let socket = inside::entry(&self.folder(), Path::new(&self.socket))?;
        let (found, owner) = (socket.metadata()?, self.owner);
        if !found.file_type().is_socket() || found.uid() != owner {
            return Err(io::Error::other(format!("it is not a socket of uid {owner}, the process' user")));
        }
        conversation::connect(&socket, &self.deadline.at_most(SOCKET_TIME_LIMIT))
    }

    /// Whether the JVM's socket exists and accepts connections.
    fn is_listening(&self) -> Result<bool, AttachError> {
        match self.stream() {
            Ok(stream) => {
                self.connected.replace(Some(stream));
                Ok(true)
            }
            // A socket left by an earlier process with this ID accepts no connection.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                Ok(false)
            }
            Err(source) => {
                Err(AttachError::Io { pid: self.pid, step: format!("/tmp/{}", self.socket), source })
            }
        }
    }
}

/// The file `.attach_pidN`; removed on drop.
struct AttachFile(PathBuf);

impl AttachFile {
    /// Creates the file at the first possible path. An existing file or symbolic link is never followed or
    /// used.
    fn create(pid: u32, [first, second]: [PathBuf; 2]) -> Result<AttachFile, AttachError> {
        let create = |place: PathBuf| match file::create_new(&place, 0o600) {
            Ok(_) => Ok(AttachFile(place)),
            Err(source) => {
                let name = place.file_name().unwrap_or_default().to_string_lossy();
                Err(AttachError::Io { pid, step: format!("creating {name}"), source })
            }
        };
        create(first).or_else(|_| create(second))
    }
}

impl Drop for AttachFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn status(root: &Root, pid: u32) -> Result<Status, Reason> {
    let path = format!("proc/{pid}/status");
    let status = parse_status(&root.read(&path)?);
    status.ok_or_else(|| Reason::new(format!("/{path} lacks its user, process ID or signals")))
}

fn parse_status(text: &str) -> Option<Status> {
    let words = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        Some(line.split_whitespace())
    };
    let caught = u64::from_str_radix(words("SigCgt")?.next()?, 16).ok()?;
    // A kernel without PID name spaces has no line NSpid.
    let own_pid = words("NSpid").and_then(|numbers| numbers.last()).or_else(|| words("Pid")?.next())?;
    Some(Status {
        effective_uid: words("Uid")?.nth(1)?.parse().ok()?,
        own_pid: own_pid.parse().ok()?,
        catches_quit: caught & SIGQUIT_BIT != 0,
    })
}

/// Checks that SIGQUIT starts the attach listener of `pid` and has no other effect.
fn check_attachable(root: &Root, pid: u32) -> Result<(), Reason> {
    if !status(root, pid)?.catches_quit {
        return Reason::err(
            "it does not catch SIGQUIT, which would end it (-Xrs, or it has only just started)",
        );
    }
    let tasks = format!("proc/{pid}/task");
    let dispatches = |tid: &String| {
        root.read(format!("{tasks}/{tid}/comm")).is_ok_and(|name| name.trim_end() == DISPATCHER)
    };
    if !root.list(&tasks)?.iter().any(dispatches) {
        return Reason::err("it has no HotSpot thread that handles SIGQUIT");
    }
    match flag_is_set(root, pid, &smaps::read(root, &pid.to_string())?, NO_ATTACH) {
        Some(true) => Reason::err(format!("it runs with -XX:+{NO_ATTACH}")),
        // Its memory cannot be read, so check the command line and the environment.
        None if may_disable_attach(root, pid) => {
            Reason::err(format!("its memory cannot be read, and its options may include -XX:+{NO_ATTACH}"))
        }
        Some(false) | None => Ok(()),
    }
}

/// Whether the command line or environment contains the flag, or names an argument file that may contain it.
fn may_disable_attach(root: &Root, pid: u32) -> bool {
    let texts = ["cmdline", "environ"].map(|file| root.read(format!("proc/{pid}/{file}")));
    let names_file = |word: &str| word.starts_with('@') || word.starts_with("-XX:Flags=");
    let may = |text: String| text.contains(NO_ATTACH) || text.split('\0').any(names_file);
    texts.into_iter().any(|text| text.map_or(true, may))
}
