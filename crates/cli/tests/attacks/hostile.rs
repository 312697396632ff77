//! Hostile processes: the helper programs in `helpers`, as an ordinary user.

use std::{
    error::Error,
    fs,
    io::{BufRead, BufReader},
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use hugewise_linux::sys::process::kill_group;
use tempfile::TempDir;

use crate::{TestResult, skip};

/// The ordinary user, and its group.
pub const USER: u32 = 65534;

const HELPERS: [(&str, &str); 11] = [
    ("caller", include_str!("helpers/caller.c")),
    ("image", include_str!("helpers/image.c")),
    ("jvm", include_str!("helpers/jvm.c")),
    ("links", include_str!("helpers/links.c")),
    ("mappings", include_str!("helpers/mappings.c")),
    ("memory", include_str!("helpers/memory.c")),
    ("named", include_str!("helpers/named.c")),
    ("overlay", include_str!("helpers/overlay.c")),
    ("terminal", include_str!("helpers/terminal.c")),
    ("threads", include_str!("helpers/threads.c")),
    ("typing", include_str!("helpers/typing.c")),
];

/// A folder that every user may enter, for programs and files of one test.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Result<Place, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        Ok(Place(folder))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A new folder of the ordinary user.
    pub fn of_user(&self) -> Result<PathBuf, Box<dyn Error>> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let folder = self.path(&format!("user-{}", MADE.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&folder)?;
        chown(&folder, Some(USER), Some(USER))?;
        Ok(folder)
    }

    /// The path of a helper program, which is compiled at the first use.
    pub fn helper(&self, name: &str) -> Result<PathBuf, Box<dyn Error>> {
        let program = self.path(name);
        if !program.exists() {
            let known = HELPERS.iter().find(|(known, _)| *known == name);
            let (_, source) = known.ok_or_else(|| format!("no helper program {name}"))?;
            let file = self.path(&format!("{name}.c"));
            fs::write(&file, source)?;
            let mut compiler = Command::new("cc");
            compiler.args(["-O1", "-pthread", "-o"]).args([&program, &file]).arg("-lutil");
            let output = compiler.output()?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into());
            }
        }
        Ok(program)
    }

    /// A script or program of this text.
    pub fn script(&self, name: &str, text: &str) -> Result<String, Box<dyn Error>> {
        let path = self.path(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path.display().to_string())
    }

    /// A helper program as the ordinary user, which is ready.
    pub fn hostile(&self, name: &str, arguments: &[&str]) -> Result<Hostile, Box<dyn Error>> {
        let mut command = Command::new(self.helper(name)?);
        Hostile::start(command.args(arguments).uid(USER).gid(USER))
    }

    /// The helper `jvm`, with a folder of its own.
    pub fn jvm(&self, how: &str) -> Result<Hostile, Box<dyn Error>> {
        self.jvm_with(how, &[])
    }

    /// The helper `jvm` with this command line after `java`.
    pub fn jvm_with(&self, how: &str, words: &[&str]) -> Result<Hostile, Box<dyn Error>> {
        let mut command = Command::new(self.helper("jvm")?);
        command.arg0("java").args(words).env("HOW", how).env("FOLDER", self.of_user()?);
        Hostile::start(command.uid(USER).gid(USER))
    }

    /// The helper `overlay` over `place`, which does not answer a lookup of names that begin with `name`.
    pub fn overlay(&self, place: &str, name: &str) -> Result<Hostile, Box<dyn Error>> {
        let kinds = fs::read_to_string("/proc/filesystems")?;
        if !["\tfuse\n", "\toverlay\n"].iter().all(|kind| kinds.contains(kind)) {
            return skip("a kernel without overlays or file systems in user space");
        }
        needs_user_namespaces()?;
        let folder = self.of_user()?;
        self.hostile("overlay", &[&self.device()?, &folder.display().to_string(), place, name])
    }

    /// A node of /dev/fuse that every user may open, as on most machines.
    fn device(&self) -> Result<String, Box<dyn Error>> {
        let device = self.text("fuse");
        if !Path::new(&device).exists() {
            let made = Command::new("mknod").args(["-m", "666", &device, "c", "10", "229"]).status()?;
            if !made.success() {
                return Err(format!("{device} could not be made").into());
            }
        }
        Ok(device)
    }

    /// A shell of the ordinary user as root of a user and mount namespace of its own; `script` prints `ready`.
    pub fn namespace(&self, script: &str) -> Result<Hostile, Box<dyn Error>> {
        needs_user_namespaces()?;
        let mut command = Command::new("unshare");
        Hostile::start(command.args(["-Urm", "sh", "-c", script]).uid(USER).gid(USER))
    }
}

/// Skips the test if ordinary users cannot create namespaces.
fn needs_user_namespaces() -> TestResult {
    let mut command = Command::new("unshare");
    let made = command.args(["-Urm", "true"]).uid(USER).gid(USER).stderr(Stdio::null()).status()?;
    if made.success() { Ok(()) } else { skip("ordinary users cannot create user namespaces") }
}

/// A process group of another user. Killed when dropped.
pub struct Hostile {
    child: Child,
    /// The process that is hostile: the first one of the group, or one that it named.
    pub pid: u32,
}

impl Hostile {
    /// Starts a process group, and waits until it prints `ready`, with a process id if that is another process.
    pub fn start(command: &mut Command) -> Result<Hostile, Box<dyn Error>> {
        let child = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut hostile = Hostile { pid: child.id(), child };
        let mut lines = BufReader::new(hostile.child.stdout.take().ok_or("no output")?).lines();
        let ready = loop {
            let line = lines.next().ok_or_else(|| format!("{command:?} ended before it was ready"))??;
            if let Some(rest) = line.strip_prefix("ready") {
                break rest.trim().to_owned();
            }
        };
        hostile.pid = ready.parse().unwrap_or(hostile.pid);
        Ok(hostile)
    }

    pub fn pid(&self) -> String {
        self.pid.to_string()
    }

    /// Stops the process group.
    pub fn stop(&self) -> Result<(), Box<dyn Error>> {
        let group = format!("-{}", self.child.id());
        let stopped = Command::new("kill").args(["-s", "STOP", "--", &group]).status()?;
        if stopped.success() { Ok(()) } else { Err(format!("{group} could not be stopped").into()) }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = kill_group(self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(format!("/tmp/.java_pid{}", self.pid));
    }
}
