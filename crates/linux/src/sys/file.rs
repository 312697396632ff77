//! Files that only their owner may have made, and locks on them.

use std::{
    ffi::{CStr, CString},
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
        },
    },
    path::Path,
};

use super::checked;

/// Opens `path` for us alone, making it if it is missing (mode 0700).
///
/// A link, another owner, or a folder that others may write to is refused: what lies in it would
/// not be ours.
pub fn private_dir(path: &Path) -> io::Result<File> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let dir = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)?;
    let found = dir.metadata()?;
    // SAFETY: geteuid always succeeds.
    let ours = unsafe { libc::geteuid() };
    if found.uid() != ours || found.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("it belongs to uid {} with mode {:o}", found.uid(), found.mode() & 0o7777),
        ));
    }
    Ok(dir)
}

/// A file of `size` zeros in memory that children inherit; what is mapped of it shows `name` in
/// /proc/PID/maps.
pub fn inherited_memory(name: &CStr, size: u64) -> io::Result<File> {
    // SAFETY: reads one string that is live, and returns a new descriptor.
    let descriptor = checked(unsafe { libc::memfd_create(name.as_ptr(), 0) })?;
    // SAFETY: the descriptor is new and nobody else's.
    let file = unsafe { File::from_raw_fd(descriptor) };
    file.set_len(size)?;
    Ok(file)
}

/// Opens a file for reading if it is a regular one; never waits for a pipe or a device that stands in its
/// place.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Opens `path` below `folder` as its own processes would: links lead nowhere else than below it. A
/// regular file that belongs to `owner`, or nothing is opened. Needs Linux 5.6.
pub fn open_inside(folder: &Path, path: &Path, owner: u32) -> io::Result<File> {
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = open_at_root(folder, path, flags, 0)?;
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != owner {
        let reason = format!("it is no regular file of uid {owner}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    Ok(file)
}

/// Makes the file `path` below `folder`, as [`open_inside`] would find it, for `owner` alone.
pub fn create_inside(folder: &Path, path: &Path, owner: u32) -> io::Result<File> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    let file = open_at_root(folder, path, flags, 0o600)?;
    std::os::unix::fs::fchown(&file, Some(owner), None)?;
    Ok(file)
}

fn open_at_root(folder: &Path, path: &Path, flags: libc::c_int, mode: u64) -> io::Result<File> {
    let folder = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(folder)?;
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: zero is a valid value of each of its fields.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC).unsigned_abs().into();
    how.mode = mode;
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: reads one string and one structure of the length that is told, both live; returns a new
    // descriptor.
    let descriptor = checked(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            folder.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    })?;
    let descriptor = libc::c_int::try_from(descriptor).map_err(io::Error::other)?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Gives back the space of the first `bytes` of a file, whose length stays. EOPNOTSUPP where its file
/// system cannot.
pub fn release_beginning(file: &File, bytes: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let bytes = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: fallocate takes a descriptor that we own and no memory.
    checked(unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, bytes) }).map(drop)
}

/// Takes the lock of an open file, or tells that somebody else has it (`false`).
///
/// It is released when the file is closed, by the death of its process too.
pub fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: flock takes a descriptor that we own and no memory.
    match checked(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Does a program file give capabilities to whoever runs it? One that cannot be read about does not.
#[must_use]
pub fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: two strings that end in null, and no buffer: the size of the attribute is asked for only.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn links_do_not_lead_out() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let (inside, outside) = (dir.path().join("root"), dir.path().join("secret"));
        fs::create_dir(&inside)?;
        fs::write(&outside, "secret")?;
        fs::write(inside.join("plain"), "plain")?;
        symlink("/plain", inside.join("link"))?;
        symlink("../secret", inside.join("out"))?;
        let ours = crate::sys::process::effective_uid();
        for path in ["plain", "/plain", "link", "../plain"] {
            assert!(open_inside(&inside, Path::new(path), ours).is_ok(), "{path}");
        }
        assert!(open_inside(&inside, Path::new("out"), ours).is_err());
        assert!(open_inside(&inside, Path::new("plain"), ours + 1).is_err());
        assert!(create_inside(&inside, Path::new("/new"), ours).is_ok());
        assert!(create_inside(&inside, Path::new("/link"), ours).is_err(), "it was there");
        assert!(inside.join("new").exists());
        Ok(())
    }
}
