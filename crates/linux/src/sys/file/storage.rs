//! File systems that store files, in contrast to those whose files are the kernel's answers.

use std::{io, mem::MaybeUninit, os::fd::AsRawFd};

use crate::sys::checked;

/// The magic numbers of file systems that store files (statfs(2), and `include/uapi/linux/magic.h`).
const STORAGE: [u32; 26] = [
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x0000_ef53, // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0x794c_7630, // overlay
    0xf2f5_2010, // f2fs
    0x2fc1_2fc1, // zfs
    0xca45_1a4e, // bcachefs
    0x7371_7368, // squashfs
    0xe0f5_e1e2, // erofs
    0x0000_9660, // iso9660
    0x3153_464a, // jfs
    0x5265_4973, // reiserfs
    0x0000_3434, // nilfs2
    0x0000_4d44, // vfat
    0x2011_bab0, // exfat
    0x7366_746e, // ntfs3
    0x0000_6969, // nfs
    0xff53_4d42, // cifs
    0xfe53_4d42, // smb2
    0x00c3_6400, // ceph
    0x0102_1997, // 9p
    0x6573_5546, // fuse, virtiofs
    0x0bd0_0bd0, // lustre
    0x4750_4653, // gpfs
];

/// Whether the file system of an open file stores files. Not so proc, whose files a bind mount can put in any place.
pub fn stores_files(file: &impl AsRawFd) -> io::Result<bool> {
    Ok(STORAGE.contains(&file_system(file)?))
}

/// Whether an open file is one of proc.
pub(super) fn is_of_proc(file: &impl AsRawFd) -> io::Result<bool> {
    Ok(file_system(file)? == PROC)
}

const PROC: u32 = libc::PROC_SUPER_MAGIC as u32;
/// File systems of the kernel whose files answer readers.
const KERNEL: [u32; 4] = [
    PROC,
    0x6265_6572, // sysfs
    0x7472_6163, // tracefs
    0x6462_6720, // debugfs
];

/// Whether an open file is one of the kernel's.
pub(super) fn is_of_kernel(file: &impl AsRawFd) -> io::Result<bool> {
    Ok(KERNEL.contains(&file_system(file)?))
}

/// The magic number of the file system of an open file.
fn file_system(file: &impl AsRawFd) -> io::Result<u32> {
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: writes one live statfs, for which zero is valid.
    let found = unsafe {
        checked(libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()))?;
        found.assume_init()
    };
    // The type of the field differs between C libraries; the numbers have 32 bits.
    Ok(found.f_type as u32)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn files_of_the_kernel_are_not_stored() -> io::Result<()> {
        assert!(stores_files(&tempfile::tempfile()?)?);
        for path in ["/proc/self/environ", "/proc/self", "/sys/kernel"] {
            assert!(!stores_files(&File::open(path)?)?, "{path}");
        }
        Ok(())
    }
}
