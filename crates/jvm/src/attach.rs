//! HotSpot's attach protocol, as used by `jcmd`.
//!
//! If the file `.attach_pidN` exists, SIGQUIT starts the JVM's attach listener, which serves the socket
//! `.java_pidN`. Without that file, or with attach disabled, SIGQUIT would print a thread dump to the
//! application's output, or end the process. It is sent only if neither can happen. N is the process ID in
//! the process' own PID namespace; both files are in the process' own directories.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::AsRawFd,
        unix::{
            fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{
    proc::smaps,
    reading::Reason,
    root::Root,
    sys::{file::inside, process},
};

use crate::regions::jvm::flag_is_set;

/// Longest time until a JVM opens its socket; a long time to safepoint delays it.
const SOCKET_TIME_LIMIT: Duration = Duration::from_secs(5);
/// Longest time until a JVM answers.
const ANSWER_TIME_LIMIT: Duration = Duration::from_secs(20);
/// Largest answer, in bytes: the memory map of a process with 10,000 threads has a few megabytes.
const MAX_ANSWER_BYTES: u64 = 64 << 20;
/// `SigCgt` has signal n at bit n - 1.
const SIGQUIT_BIT: u64 = 1 << 2;
/// The thread that handles SIGQUIT; the kernel keeps 15 bytes of its name.
const DISPATCHER: &str = "Signal Dispatch";
const NO_ATTACH: &str = "DisableAttachMechanism";

/// A JVM with an open attach socket.
#[derive(Debug)]
pub struct Jvm {
    pid: u32,
    /// Effective user id of the process.
    owner: u32,
    /// The process' /tmp.
    folder: File,
    /// Name of the socket in `folder`.
    socket: String,
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
    #[error(
        "attaching to process {0}: it opened no socket within {seconds} s; it may be stopped or busy",
        seconds = SOCKET_TIME_LIMIT.as_secs()
    )]
    NoSocket(u32),
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

/// Fields of /proc/PID/status that attaching needs.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    effective_uid: u32,
    /// Process ID in the innermost PID namespace.
    own_pid: u32,
    catches_quit: bool,
}

impl Jvm {
    /// Connects to the JVM in process `pid`; starts its attach listener if necessary.
    pub fn connect(root: &Root, pid: u32) -> Result<Jvm, AttachError> {
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
        // A symbolic link in a container could lead outside of it.
        let folder = inside::directory(&root.path(format!("proc/{pid}/root")), Path::new("tmp"))
            .map_err(|error| refused(format!("its /tmp is not an accessible directory: {error}")))?;
        let owner = status.effective_uid;
        let jvm = Jvm { pid, owner, folder, socket: format!(".java_pid{}", status.own_pid) };
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
        let begin = Instant::now();
        let mut pause = Duration::from_millis(5);
        while begin.elapsed() < SOCKET_TIME_LIMIT {
            thread::sleep(pause);
            if jvm.is_listening()? {
                return Ok(jvm);
            }
            pause = (pause * 2).min(Duration::from_millis(200));
        }
        Err(AttachError::NoSocket(pid))
    }

    /// The answer to a diagnostic command, as `jcmd PID COMMAND` prints it.
    pub fn command(&self, command: &str) -> Result<String, AttachError> {
        let failed = |source| AttachError::Io { pid: self.pid, step: format!("'{command}'"), source };
        let answer = self.converse(command).map_err(failed)?;
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

    fn converse(&self, command: &str) -> io::Result<Vec<u8>> {
        if command.contains('\0') {
            let error = "a command must not contain a zero byte";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let mut stream = self.stream()?;
        stream.set_write_timeout(Some(ANSWER_TIME_LIMIT))?;
        // Protocol version, operation, and its three arguments.
        stream.write_all(format!("1\0jcmd\0{command}\0\0\0").as_bytes())?;
        let begin = Instant::now();
        let mut answer = Vec::new();
        let mut piece = [0; 1 << 16];
        loop {
            let left = ANSWER_TIME_LIMIT.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut piece) {
                Ok(0) => return Ok(answer),
                Ok(read) => answer.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if answer.len() as u64 > MAX_ANSWER_BYTES {
                return Err(io::Error::other("the answer is too long"));
            }
        }
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
        UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()))
    }

    /// Whether the JVM's socket exists and accepts connections.
    fn is_listening(&self) -> Result<bool, AttachError> {
        match self.stream() {
            Ok(_) => Ok(true),
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
        let create =
            |place: PathBuf| match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&place) {
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

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use proptest::prelude::*;

    use super::*;

    const STATUS: &str =
        "Name:\tjava\nPid:\t814\nUid:\t1000\t1001\t1000\t1000\nNSpid:\t814\t7\nSigCgt:\t2000000181005ccf\n";

    #[test]
    fn the_number_in_its_own_name_space_counts() {
        let expected = Status { effective_uid: 1001, own_pid: 7, catches_quit: true };
        assert_eq!(parse_status(STATUS), Some(expected));
        let plain = STATUS.replace("NSpid:\t814\t7\n", "").replace("5ccf", "5ccb");
        let expected = Status { effective_uid: 1001, own_pid: 814, catches_quit: false };
        assert_eq!(parse_status(&plain), Some(expected));
        assert_eq!(parse_status("Uid:\t0\n"), None);
    }

    #[test]
    fn the_request_follows_no_link_and_is_taken_away() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (bait, other) = (folder.path().join("bait"), folder.path().join("other"));
        symlink(folder.path().join("victim"), &bait)?;
        let request = AttachFile::create(1, [bait.clone(), other.clone()]).map_err(io::Error::other)?;
        assert!(other.exists() && !folder.path().join("victim").exists());
        assert!(AttachFile::create(1, [bait, other.clone()]).is_err(), "an existing file was used");
        drop(request);
        assert!(!other.exists());
        Ok(())
    }

    fn jvm(folder: &Path, owner: u32) -> io::Result<Jvm> {
        Ok(Jvm { pid: 1, owner, folder: File::open(folder)?, socket: "socket".to_owned() })
    }

    #[test]
    fn only_a_socket_of_the_process_is_used() -> io::Result<()> {
        let (folder, elsewhere) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let ours = process::effective_uid();
        assert!(!jvm(folder.path(), ours)?.is_listening().map_err(io::Error::other)?, "there is none");
        let bait = elsewhere.path().join("socket");
        let _listener = UnixListener::bind(&bait)?;
        assert!(jvm(elsewhere.path(), ours)?.is_listening().map_err(io::Error::other)?);
        assert!(jvm(elsewhere.path(), ours + 1)?.is_listening().is_err(), "a socket of another user");
        symlink(&bait, folder.path().join("socket"))?;
        assert!(jvm(folder.path(), ours)?.is_listening().is_err(), "a link to a socket");
        Ok(())
    }

    fn served(answer: &'static [u8]) -> io::Result<(tempfile::TempDir, Jvm)> {
        let folder = tempfile::tempdir()?;
        let listener = UnixListener::bind(folder.path().join("socket"))?;
        thread::spawn(move || -> io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            let mut asked = [0; 17];
            stream.read_exact(&mut asked)?;
            stream.write_all(if asked == *b"1\0jcmd\0VM.info\0\0\0" { answer } else { b"7\nwhat?" })
        });
        let jvm = jvm(folder.path(), process::effective_uid())?;
        Ok((folder, jvm))
    }

    #[test]
    fn an_answer_comes_back_and_a_refusal_is_an_error() -> io::Result<()> {
        let (_folder, jvm) = served(b"0\nHeap address: 0x1\nmore\n")?;
        assert_eq!(jvm.command("VM.info").ok().as_deref(), Some("Heap address: 0x1\nmore\n"));
        let (_folder, jvm) = served(b"1\njava.lang.IllegalArgumentException: Unknown\n")?;
        let error = jvm.command("VM.info").map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("status 1") && text.contains("Unknown")));
        assert!(jvm.command("VM\0info").is_err());
        Ok(())
    }

    #[test]
    fn a_process_that_does_not_listen_is_left_alone() {
        // This process does not catch SIGQUIT, which would end it.
        let refused = Jvm::connect(&Root::live(), std::process::id());
        assert!(refused.is_err_and(|error| matches!(error, AttachError::Refused { .. })));
        assert!(Jvm::connect(&Root::live(), u32::MAX).is_err());
    }

    proptest! {
        #[test]
        fn no_status_makes_it_panic(text in "(.|\n)*", cut in 0..STATUS.len()) {
            let _ = parse_status(&text);
            let _ = parse_status(&format!("{}{text}", &STATUS[..cut]));
        }
    }
}
