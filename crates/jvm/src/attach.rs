//! Asking a running HotSpot: the attach protocol, as `jcmd` speaks it.
//!
//! A file `.attach_pidN` tells the JVM that the SIGQUIT that follows is meant to wake its attach
//! listener, which then serves a socket `.java_pidN`. Without that file, or where the JVM does not
//! want to be attached to, SIGQUIT would print a thread dump into the application's output, or end
//! it: it is sent only where neither can happen. N is the process' number in its own name space,
//! and both files are looked for in its own folders.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    os::unix::{
        fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
        net::UnixStream,
    },
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{proc::smaps, root::Root, sys::process};

use crate::regions::jvm::flag_is_set;

/// How long a JVM may take to open its socket; one at a safepoint that does not come may be slow.
const OPENING: Duration = Duration::from_secs(5);
/// How long it may take to answer.
const ANSWERING: Duration = Duration::from_secs(20);
/// No answer is longer: the map of a process with ten thousand threads has few megabytes.
const LONGEST: u64 = 64 << 20;
/// `SigCgt` has signal n at bit n - 1.
const SIGQUIT_BIT: u64 = 1 << 2;
/// The thread that takes SIGQUIT; the kernel keeps 15 bytes of its name.
const DISPATCHER: &str = "Signal Dispatch";
const NO_ATTACH: &str = "DisableAttachMechanism";

/// A JVM that listens.
#[derive(Debug)]
pub struct Jvm {
    pid: u32,
    socket: PathBuf,
}

/// Why a JVM could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Nothing was done to the process.
    #[error("not attaching to process {pid}: {reason}")]
    Refused {
        /// The process.
        pid: u32,
        /// Why not.
        reason: String,
    },
    /// The system refused a step.
    #[error("attaching to process {pid}: {step}: {source}")]
    Io {
        /// The process.
        pid: u32,
        /// What was tried.
        step: String,
        /// What the system answered.
        source: io::Error,
    },
    /// It did not open its socket in time.
    #[error(
        "attaching to process {0}: it was asked to listen and has not for {seconds} s; it may be stopped, or busy",
        seconds = OPENING.as_secs()
    )]
    Silent(u32),
    /// It refused the command.
    #[error("process {pid} answered '{command}' with status {status}: {text}")]
    Answer {
        /// The process.
        pid: u32,
        /// The command.
        command: String,
        /// The status it gave.
        status: String,
        /// The first line of what it said.
        text: String,
    },
}

/// What /proc/PID/status tells about attaching.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    effective_uid: u32,
    /// In its innermost name space.
    own_pid: u32,
    catches_quit: bool,
}

impl Jvm {
    /// Reaches the JVM in process `pid`, waking its listener if it sleeps.
    pub fn connect(root: &Root, pid: u32) -> Result<Jvm, AttachError> {
        let refused = |reason: String| AttachError::Refused { pid, reason };
        if !root.is_live() {
            return Err(refused("a captured tree has no running process".to_owned()));
        }
        let status = status(root, pid).map_err(refused)?;
        let ours = process::effective_uid();
        if ours != status.effective_uid && ours != 0 {
            let theirs = status.effective_uid;
            return Err(refused(format!("it runs as uid {theirs}, we as uid {ours}; be that user or root")));
        }
        let folder = root.path(format!("proc/{pid}/root/tmp"));
        // A link in a container would lead us elsewhere than its processes.
        if !fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir()) {
            return Err(refused(format!("{} is no folder that we may see", folder.display())));
        }
        let jvm = Jvm { pid, socket: folder.join(format!(".java_pid{}", status.own_pid)) };
        if jvm.is_listening(&status)? {
            return Ok(jvm);
        }
        may_be_woken(root, pid).map_err(refused)?;
        let name = format!(".attach_pid{}", status.own_pid);
        let _request =
            Request::leave(pid, [root.path(format!("proc/{pid}/cwd")).join(&name), folder.join(&name)])?;
        process::quit_process(pid, || may_be_woken(root, pid).is_ok()).map_err(|source| AttachError::Io {
            pid,
            step: "SIGQUIT".to_owned(),
            source,
        })?;
        let begin = Instant::now();
        let mut pause = Duration::from_millis(5);
        while begin.elapsed() < OPENING {
            thread::sleep(pause);
            if jvm.is_listening(&status)? {
                return Ok(jvm);
            }
            pause = (pause * 2).min(Duration::from_millis(200));
        }
        Err(AttachError::Silent(pid))
    }

    /// The answer to a diagnostic command, as `jcmd PID COMMAND` would print it.
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
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a command holds no zero byte"));
        }
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_write_timeout(Some(ANSWERING))?;
        // Version, operation, and its three arguments.
        stream.write_all(format!("1\0jcmd\0{command}\0\0\0").as_bytes())?;
        let begin = Instant::now();
        let mut answer = Vec::new();
        let mut piece = [0; 1 << 16];
        loop {
            let left = ANSWERING.saturating_sub(begin.elapsed());
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
            if answer.len() as u64 > LONGEST {
                return Err(io::Error::other("the answer is longer than any of a JVM"));
            }
        }
    }

    /// Is its socket there, is it the process' own, and does somebody serve it?
    fn is_listening(&self, status: &Status) -> Result<bool, AttachError> {
        let refused = |reason| Err(AttachError::Refused { pid: self.pid, reason });
        let found = match fs::symlink_metadata(&self.socket) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => {
                let step = self.socket.display().to_string();
                return Err(AttachError::Io { pid: self.pid, step, source });
            }
        };
        let path = self.socket.display();
        if !found.file_type().is_socket() {
            return refused(format!("{path} is no socket"));
        }
        if found.uid() != status.effective_uid {
            return refused(format!("{path} belongs to uid {}, not to its user", found.uid()));
        }
        // One that an earlier process of this number left behind answers nobody.
        Ok(UnixStream::connect(&self.socket).is_ok())
    }
}

/// The file that says what the signal means; gone when this is dropped.
struct Request(PathBuf);

impl Request {
    /// Leaves it in the first of these places that lets us. It must be new: a link or a file that
    /// somebody put there is never followed, nor taken for ours.
    fn leave(pid: u32, places: [PathBuf; 2]) -> Result<Request, AttachError> {
        let mut failure = None;
        for place in places {
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&place) {
                Ok(_) => return Ok(Request(place)),
                Err(source) => {
                    failure = Some(AttachError::Io { pid, step: place.display().to_string(), source });
                }
            }
        }
        let nowhere = || AttachError::Refused { pid, reason: "no place for its file".to_owned() };
        Err(failure.unwrap_or_else(nowhere))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn status(root: &Root, pid: u32) -> Result<Status, String> {
    let path = format!("proc/{pid}/status");
    let text = root.read(&path).map_err(|error| error.to_string())?;
    parse_status(&text).ok_or_else(|| format!("/{path} does not tell its user, number and signals"))
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

/// Is it sure that SIGQUIT wakes the listener of `pid`, and does nothing else?
fn may_be_woken(root: &Root, pid: u32) -> Result<(), String> {
    if !status(root, pid)?.catches_quit {
        return Err(
            "it does not catch SIGQUIT, which would end it (-Xrs, or it has only just started)".to_owned()
        );
    }
    let tasks = format!("proc/{pid}/task");
    let tids = root.list(&tasks).map_err(|error| error.to_string())?;
    let dispatches = |tid: &String| {
        root.read(format!("{tasks}/{tid}/comm")).is_ok_and(|name| name.trim_end() == DISPATCHER)
    };
    if !tids.iter().any(dispatches) {
        return Err("it has no thread of HotSpot's that takes SIGQUIT".to_owned());
    }
    let vmas = smaps::read(root, &pid.to_string()).map_err(|error| error.to_string())?;
    match flag_is_set(root, pid, &vmas, NO_ATTACH) {
        Some(true) => Err(format!("it runs with -XX:+{NO_ATTACH}")),
        Some(false) => Ok(()),
        // Its memory cannot be read: at least it must not say so.
        None if says_no(root, pid) => Err(format!("its options may hold -XX:+{NO_ATTACH}")),
        None => Ok(()),
    }
}

/// Does its command line or its environment name the flag, or an argument file that might?
fn says_no(root: &Root, pid: u32) -> bool {
    let texts = ["cmdline", "environ"].map(|file| root.read(format!("proc/{pid}/{file}")));
    texts.iter().any(|text| match text {
        Ok(text) => {
            text.contains(NO_ATTACH)
                || text.split('\0').any(|word| word.starts_with('@') || word.starts_with("-XX:Flags="))
        }
        Err(_) => true,
    })
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
        let request = Request::leave(1, [bait.clone(), other.clone()]).map_err(io::Error::other)?;
        assert!(other.exists() && !folder.path().join("victim").exists());
        assert!(Request::leave(1, [bait, other.clone()]).is_err(), "a file of somebody else's was taken");
        drop(request);
        assert!(!other.exists());
        Ok(())
    }

    fn served(answer: &'static [u8]) -> io::Result<(tempfile::TempDir, Jvm)> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket)?;
        thread::spawn(move || -> io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            let mut asked = [0; 17];
            stream.read_exact(&mut asked)?;
            stream.write_all(if asked == *b"1\0jcmd\0VM.info\0\0\0" { answer } else { b"7\nwhat?" })
        });
        Ok((folder, Jvm { pid: 1, socket }))
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
        // This one catches no SIGQUIT: it would end.
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
