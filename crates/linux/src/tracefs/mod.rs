//! tracefs: what the kernel did, event by event, in a buffer of our own.
//!
//! Sources: Documentation/trace/{ftrace,events}.rst. An [`Instance`] is a folder below `instances/`
//! with settings and buffers that nobody else uses; making and removing it goes through the
//! journal of hugewise-changes ([`crate::settings::Setting::TraceInstance`]).

mod format;
mod instance;
mod ring;

use std::{
    fs::{self, File},
    io,
    os::fd::AsRawFd,
    path::PathBuf,
};

use crate::{
    root::{ReadError, Root},
    sys::mount,
};

pub use format::{Field, Format, Value};
pub use instance::{Event, Instance, Losses, Options};
pub use ring::{Damaged, Layout, Page, Record};

/// Where it is usually mounted.
pub const PLACES: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
const PID_NAMESPACE: &str = "proc/self/ns/pid";
/// The first PID name space has this inode on every kernel (include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// tracefs, reached.
#[derive(Debug)]
pub struct Tracefs {
    dir: PathBuf,
    /// Holds a mount that no path leads to.
    own_mount: Option<File>,
}

/// Why it cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TracefsError {
    /// It is there, and not for us.
    #[error("{}: {source}; tracing takes root", path.display())]
    NotAllowed {
        /// Where it is mounted.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// It is not mounted, and could not be reached without.
    #[error(
        "tracefs is not mounted on /sys/kernel/tracing, and a mount of our own was refused: {0}; as root: mount -t \
         tracefs nodev /sys/kernel/tracing"
    )]
    Absent(io::Error),
    /// The kernel counts processes otherwise than we do.
    #[error(
        "events name threads by their number on the host, and we are in another PID name space ({0}); record from \
         the host"
    )]
    OtherNumbers(String),
    /// A step that the system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
}

impl Tracefs {
    /// Finds it where it is mounted; where it is not, mounts it for this process alone, at no path
    /// (see [`Tracefs::is_own_mount`]).
    pub fn open(root: &Root) -> Result<Tracefs, TracefsError> {
        for place in PLACES {
            let path = root.path(place);
            match path.join("instances").metadata() {
                Ok(_) => return Ok(Tracefs { dir: path, own_mount: None }),
                Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(TracefsError::NotAllowed { path, source });
                }
                Err(_) => {}
            }
        }
        if !root.is_live() {
            return Err(TracefsError::Absent(io::ErrorKind::Unsupported.into()));
        }
        let mount = mount::detached(c"tracefs").map_err(TracefsError::Absent)?;
        let dir = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Ok(Tracefs { dir, own_mount: Some(mount) })
    }

    /// Is it mounted for this process alone, because it is mounted nowhere?
    #[must_use]
    pub fn is_own_mount(&self) -> bool {
        self.own_mount.is_some()
    }

    /// Do events name threads by the numbers that we know them by?
    pub fn numbers_are_ours(root: &Root) -> Result<(), TracefsError> {
        let path = root.path(PID_NAMESPACE);
        let found = fs::read_link(&path).map_err(|source| TracefsError::Io { path, source })?;
        match found.to_string_lossy() {
            found if found == FIRST_PID_NAMESPACE => Ok(()),
            found => Err(TracefsError::OtherNumbers(found.into_owned())),
        }
    }

    /// The names of all instances.
    pub fn instances(&self) -> Result<Vec<String>, TracefsError> {
        let path = self.dir.join("instances");
        let entries = fs::read_dir(&path).map_err(|source| TracefsError::Io { path, source })?;
        Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
    }

    /// The folder of an instance of ours.
    #[must_use]
    pub fn instance(&self, id: u32) -> PathBuf {
        self.dir.join("instances").join(name(id))
    }
}

/// The name of an instance of ours.
#[must_use]
pub fn name(id: u32) -> String {
    format!("hugewise-{id}")
}

/// As an instance that is there reads, and one that is not.
pub const PRESENT: &str = "present";
const ABSENT: &str = "absent";

/// Is there an instance of ours of this number?
pub fn is_present(root: &Root, id: u32) -> Result<&'static str, ReadError> {
    let unreachable =
        |error: TracefsError| ReadError::Io { path: root.path(PLACES[0]), source: io::Error::other(error) };
    let tracefs = Tracefs::open(root).map_err(unreachable)?;
    let path = tracefs.instance(id);
    match fs::metadata(&path) {
        Ok(_) => Ok(PRESENT),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ABSENT),
        Err(source) => Err(ReadError::Io { path, source }),
    }
}

/// Makes it, or removes it with all that is in it. EBUSY while somebody reads it.
pub fn make(root: &Root, id: u32, present: bool) -> io::Result<()> {
    // It must outlive the path where the mount is our own.
    let tracefs = Tracefs::open(root).map_err(io::Error::other)?;
    let path = tracefs.instance(id);
    if present { fs::create_dir(path) } else { fs::remove_dir(path) }
}
