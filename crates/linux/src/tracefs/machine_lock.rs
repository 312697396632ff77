//! Locks that hold in all mount namespaces. Each namespace may have its own /run, but a machine has one tracefs:
//! its directories have the same inodes wherever it is mounted, and only root can open them.

use std::{fs::File, io, os::unix::fs::MetadataExt};

use super::Tracefs;
use crate::{root::Root, sys::file};

/// What a lock protects; each has a directory of tracefs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protected {
    Settings,
    Recordings,
}

/// The result of an attempt to take a lock.
#[derive(Debug)]
pub enum Attempt {
    /// The lock is held until the file is closed.
    Held(File),
    /// Another process holds it: its process id, `None` if it is not in a visible PID namespace.
    Busy(Option<u32>),
}

/// Takes a lock without waiting. Fails without CAP_SYS_ADMIN, or on a kernel without tracefs.
pub fn attempt(protected: Protected) -> io::Result<Attempt> {
    let tracefs = Tracefs::open(&Root::live()).map_err(io::Error::other)?;
    let lock = file::open_folder(&match protected {
        Protected::Settings => tracefs.dir,
        Protected::Recordings => tracefs.dir.join("instances"),
    })?;
    if file::try_lock(&lock)? {
        return Ok(Attempt::Held(lock));
    }
    let found = lock.metadata()?;
    let locks = Root::live().read("proc/locks").unwrap_or_default();
    Ok(Attempt::Busy(holder(&locks, found.dev(), found.ino())))
}

/// The process id of the holder of a `flock` in /proc/locks.
fn holder(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let id = format!("{:02x}:{:02x}:{inode}", libc::major(device), libc::minor(device));
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = words[..] else { return None };
        (file == id).then(|| pid.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_by_device_and_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 88 00:0d:1 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 71 00:0d:17 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 72 00:0d:1 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 73 00:0d:1 0 EOF\n";
        let device = libc::makedev(0, 13);
        assert_eq!(holder(locks, device, 1), Some(72));
        assert_eq!(holder(locks, device, 2), None);
    }
}
