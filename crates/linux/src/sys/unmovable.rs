//! Pages that the kernel cannot migrate.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd},
};

use libc::{c_int, c_uint};

use super::checked;

/// Capacity requested for a pipe, in pages: with CAP_SYS_RESOURCE, and without it (`fs.pipe-max-size`).
const PIPE_CAPACITY_PAGES: [usize; 2] = [1024, 256];

/// Pages of this process that the kernel cannot migrate as long as this value lives, even after they are
/// unmapped.
///
/// A pipe that is never read refers to them (`vmsplice(2)`). The end of the process releases them.
#[derive(Debug, Default)]
pub struct PinnedPages {
    pipes: Vec<Pipe>,
    pinned: usize,
}

#[derive(Debug)]
struct Pipe {
    /// Never read; but without a reader, writing fails.
    _read: File,
    write: File,
    left: usize,
}

impl PinnedPages {
    /// Pins present pages of `page` bytes at these start addresses. EFAULT if a page is not mapped, EMFILE
    /// if no more pipes can be opened.
    pub fn pin(&mut self, pages: &[u64], page: usize) -> io::Result<()> {
        let mut rest = pages;
        while !rest.is_empty() {
            if self.pipes.last().is_none_or(|pipe| pipe.left == 0) {
                self.pipes.push(Pipe::open(page)?);
            }
            let Some(pipe) = self.pipes.last_mut() else { break };
            let taken = pipe.take(&rest[..rest.len().min(pipe.left)], page)?;
            self.pinned += taken;
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// The number of pinned pages.
    pub fn len(&self) -> usize {
        self.pinned
    }

    pub fn is_empty(&self) -> bool {
        self.pinned == 0
    }
}

impl Pipe {
    fn open(page: usize) -> io::Result<Pipe> {
        let mut ends: [c_int; 2] = [0; 2];
        // SAFETY: writes two live ints.
        checked(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
        // SAFETY: both descriptors are new and not shared.
        let (read, write) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
        // If both fail, the pipe keeps its default size.
        for pages in PIPE_CAPACITY_PAGES {
            let wanted = c_int::try_from(pages * page).unwrap_or(c_int::MAX);
            // SAFETY: takes numbers only.
            if unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, wanted) } > 0 {
                break;
            }
        }
        // SAFETY: takes numbers only.
        let size = checked(unsafe { libc::fcntl(write.as_raw_fd(), libc::F_GETPIPE_SZ) })?;
        Ok(Pipe { _read: read, write, left: (size.unsigned_abs() as usize / page.max(1)).max(1) })
    }

    /// Adds the first of `pages` to the pipe; returns their number.
    fn take(&mut self, pages: &[u64], page: usize) -> io::Result<usize> {
        let vectors: Vec<libc::iovec> = pages
            .iter()
            .map(|at| libc::iovec { iov_base: std::ptr::without_provenance_mut(*at as usize), iov_len: page })
            .collect();
        let flags = libc::SPLICE_F_NONBLOCK as c_uint;
        // SAFETY: the vectors are live. The kernel checks the addresses (EFAULT), takes a reference on their
        // pages, and reads or writes nothing through them.
        let taken = checked(unsafe {
            libc::vmsplice(self.write.as_raw_fd(), vectors.as_ptr(), vectors.len(), flags)
        });
        match taken {
            Ok(bytes) => {
                let taken = bytes.unsigned_abs() / page.max(1);
                self.left -= taken.min(self.left);
                if taken == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(taken) }
            }
            // The pipe is full before its size is reached; the next pipe takes the rest.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.left = 0;
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sys::memory::Mapping, units::Bytes};

    #[test]
    fn pages_of_more_than_one_pipe_are_pinned() -> io::Result<()> {
        const PAGE: usize = 1 << 16; // At least a base page, on every machine.
        let mut memory = Mapping::anonymous(Bytes((1500 * PAGE) as u64))?;
        let mut pins = PinnedPages::default();
        let pages: Vec<u64> = (0..1500).map(|n| memory.address() + (n * PAGE) as u64).collect();
        memory.bytes_mut().iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        // On smaller base pages, the first of each is pinned.
        pins.pin(&pages, 4096)?;
        assert_eq!(pins.len(), 1500);
        Ok(())
    }

    #[test]
    fn what_is_not_mapped_is_refused() {
        let mut pins = PinnedPages::default();
        assert!(pins.pin(&[1 << 12], 4096).is_err() && pins.is_empty());
    }
}
