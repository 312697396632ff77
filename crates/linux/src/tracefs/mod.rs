//! tracefs: kernel events in a buffer of this process.
//!
//! Sources: Documentation/trace/{ftrace,events}.rst. An [`Instance`] is a folder below `instances/` with
//! settings and buffers of its own; it is created and removed through the journal of hugewise-changes
//! ([`crate::settings::Setting::TraceInstance`]).

mod format;
mod instance;
pub mod machine_lock;
mod ring;

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
};

use crate::{
    root::{ReadError, Root},
    sys::{file, mount},
};

pub use format::{Field, Format, Value};
pub use instance::{Event, Instance, Losses, Options};
pub use ring::{DamagedPage, Layout, Page, Record};

/// The usual mount points.
pub const MOUNT_POINTS: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
const PID_NAMESPACE: &str = "proc/self/ns/pid";
/// The inode of the initial PID namespace on every kernel (include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Access to tracefs.
#[derive(Debug)]
pub struct Tracefs {
    dir: PathBuf,
    /// Keeps a detached mount.
    own_mount: Option<File>,
}

/// Why tracefs is not available.
#[derive(Debug, thiserror::Error)]
pub enum TracefsError {
    /// It is mounted, but this process may not use it.
    #[error("{}: {source}; tracing needs root", path.display())]
    NotAllowed {
        /// Its mount point.
        path: PathBuf,
        source: io::Error,
    },
    /// It is not mounted, and a detached mount failed.
    #[error(
        "tracefs is not mounted on /sys/kernel/tracing, and mounting it failed: {0}; run as root: mount -t \
         tracefs nodev /sys/kernel/tracing"
    )]
    Absent(io::Error),
    /// Events have the thread ids of another PID namespace.
    #[error(
        "events have the thread ids of the host, and this process is in another PID namespace ({0}); record \
         from the host"
    )]
    OtherPidNamespace(String),
    /// A system call failed.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl Tracefs {
    /// Opens tracefs at its mount point. If it is not mounted, mounts it detached, for this process only (see
    /// [`Tracefs::is_own_mount`]).
    pub fn open(root: &Root) -> Result<Tracefs, TracefsError> {
        for place in MOUNT_POINTS {
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
        let dir = file::path_of(&mount);
        Ok(Tracefs { dir, own_mount: Some(mount) })
    }

    /// True for a detached mount, which only this process sees.
    pub fn is_own_mount(&self) -> bool {
        self.own_mount.is_some()
    }

    /// Fails if thread ids in events are those of another PID namespace.
    pub fn check_pid_namespace(root: &Root) -> Result<(), TracefsError> {
        let path = root.path(PID_NAMESPACE);
        let found = file::link(&path).map_err(|source| TracefsError::Io { path, source })?;
        match found.to_string_lossy() {
            found if found == FIRST_PID_NAMESPACE => Ok(()),
            found => Err(TracefsError::OtherPidNamespace(found.into_owned())),
        }
    }

    pub fn instances(&self) -> Result<Vec<String>, TracefsError> {
        let path = self.dir.join("instances");
        let names = file::names(&path).map_err(|source| TracefsError::Io { path, source })?;
        Ok(names.iter().map(|name| name.to_string_lossy().into_owned()).collect())
    }

    /// The folder of an instance of hugewise.
    pub fn instance(&self, id: u32) -> PathBuf {
        self.dir.join("instances").join(name(id))
    }
}

/// The name of an instance of hugewise.
pub fn name(id: u32) -> String {
    format!("hugewise-{id}")
}

/// The values of [`crate::settings::Setting::TraceInstance`].
pub const PRESENT: &str = "present";
pub const ABSENT: &str = "absent";

/// `PRESENT` if the instance exists, otherwise `ABSENT`.
pub fn presence(root: &Root, id: u32) -> Result<&'static str, ReadError> {
    let tracefs = Tracefs::open(root).map_err(|error| ReadError::Io {
        path: root.path(MOUNT_POINTS[0]),
        source: io::Error::other(error),
    })?;
    let path = tracefs.instance(id);
    match path.try_exists() {
        Ok(exists) => Ok(if exists { PRESENT } else { ABSENT }),
        Err(source) => Err(ReadError::Io { path, source }),
    }
}

/// Creates or removes the instance with its contents. EBUSY while it is being read.
pub fn set_presence(root: &Root, id: u32, present: bool) -> io::Result<()> {
    // A detached mount must outlive the path.
    let tracefs = Tracefs::open(root).map_err(io::Error::other)?;
    let path = tracefs.instance(id);
    if present { fs::create_dir(path) } else { fs::remove_dir(path) }
}
