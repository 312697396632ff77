//! Namespaces and their owners.

use std::{io, os::fd::AsRawFd, os::unix::fs::MetadataExt, path::Path};

use super::{file, owned};

// Not in every supported C library; the number is from include/uapi/linux/nsfs.h: _IO(0xb7, 1).
const NS_GET_USERNS: u32 = 0xb701;

/// A namespace: the device and the inode of its file.
pub type Namespace = (u64, u64);

/// The namespace of a file such as /proc/PID/ns/mnt.
pub fn of(path: &Path) -> io::Result<Namespace> {
    let found = file::open(path)?.metadata()?;
    Ok((found.dev(), found.ino()))
}

/// The user namespace that owns the namespace of a file such as /proc/PID/ns/mnt: privileges in it count there.
///
/// EPERM if it is an ancestor of the user namespace of this process.
pub fn owner(path: &Path) -> io::Result<Namespace> {
    let namespace = file::open(path)?;
    // SAFETY: takes a descriptor that we own and no memory; returns a new descriptor.
    let owner = owned(unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS as _) })?;
    let found = owner.metadata()?;
    Ok((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_mount_namespace_has_an_owner() -> io::Result<()> {
        let ours = of(Path::new("/proc/self/ns/user"))?;
        // In a container, the owner may be an ancestor.
        match owner(Path::new("/proc/self/ns/mnt")) {
            Ok(owner) => assert_eq!(owner, ours),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        }
        Ok(())
    }
}
