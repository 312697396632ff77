//! The running server of a data folder, and its shared memory.

use std::io::Read;

use hugewise_linux::{
    proc::{
        process::Process,
        smaps::{self, Memory, Vma},
    },
    root::Root,
    sys::file,
    units::{Bytes, PageSize},
};

use super::line::NAMES;
use crate::{data_folder::DataFolder, program};

/// Largest size of the first line of `postmaster.pid`, in bytes.
const MAX_PID_BYTES: u64 = 32;

/// A server that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningServer {
    pub pid: u32,
    /// Size of its shared memory, and the page size if it is on pages of a pool; `None` if its mappings cannot be read.
    pub shared_memory: Option<(Bytes, Option<PageSize>)>,
}

/// The server that holds the lock of a data folder. The content of the lock file is not trusted: the process must
/// belong to the owner of the folder, and run in it.
pub(super) fn find(root: &Root, data: &DataFolder) -> Option<RunningServer> {
    let mut text = String::new();
    let lock = file::open(&data.path.join("postmaster.pid")).ok()?;
    lock.take(MAX_PID_BYTES).read_to_string(&mut text).ok()?;
    let pid: u32 = text.lines().next()?.trim().parse().ok()?;
    let process = Process::read(root, pid).ok()?;
    let folder = root.link(format!("proc/{pid}/cwd")).ok()?;
    (process.uid.known() == Some(&data.uid) && folder == data.path).then(|| RunningServer {
        pid,
        shared_memory: smaps::read(root, &pid.to_string()).ok().and_then(|vmas| {
            let vma = shared_memory(&vmas)?;
            Some((size(vma), PageSize::new(vma.kernel_page_size).ok().filter(|_| vma.is_hugetlb)))
        }),
    })
}

fn size(vma: &Vma) -> Bytes {
    Bytes(vma.addresses.end - vma.addresses.start)
}

/// Whether a process with these mappings runs the server's program.
pub fn runs_in(vmas: &[Vma]) -> bool {
    program::runs_in(vmas, &NAMES)
}

/// The main shared memory of a server among its mappings: the largest shared mapping without a file, of a pool or of
/// base pages.
///
/// Source: PostgreSQL's src/backend/port/sysv_shmem.c, `CreateAnonymousSegment`.
pub fn shared_memory(vmas: &[Vma]) -> Option<&Vma> {
    let is_candidate = |vma: &&Vma| {
        let nameless = ["/dev/zero", "/anon_hugepage"].iter().any(|name| vma.name.starts_with(name));
        vma.is_shared && nameless && matches!(vma.memory(), Memory::Shared | Memory::Pool)
    };
    vmas.iter().filter(is_candidate).max_by_key(|vma| size(vma))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_shared_mapping_without_a_file_is_the_shared_memory() {
        let vma = |addresses, name: &str, is_shared| Vma {
            addresses,
            name: name.to_owned(),
            is_shared,
            is_hugetlb: name.starts_with("/anon_hugepage"),
            ..Vma::default()
        };
        let others = [
            vma(0..0x90_0000, "/dev/shm/PostgreSQL.7", true),
            vma(0x100_0000..0x100_1000, "/SYSV0052e2c1", true),
            vma(0x200_0000..0x300_0000, "", false),
            vma(0x300_0000..0x30a_0000, "/dev/zero (deleted)", true),
        ];
        assert_eq!(shared_memory(&others).map(size), Some(Bytes(0xa_0000)));
        for name in ["/dev/zero (deleted)", "/anon_hugepage (deleted)"] {
            let all = [&others[..], &[vma(0x400_0000..0x440_0000, name, true)]].concat();
            assert_eq!(shared_memory(&all).map(size), Some(Bytes(0x40_0000)), "{name}");
        }
        assert_eq!(shared_memory(&[vma(0..0x40_0000, "/anon_hugepage (deleted)", false)]), None);
    }
}
