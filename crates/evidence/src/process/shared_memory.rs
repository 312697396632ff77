//! Shared memory that several inspected processes have, such as the backends of a database server.

use std::collections::BTreeMap;

use hugewise_linux::{
    pages::views::SharedByProcesses,
    proc::smaps::Vma,
    root::Root,
    units::{Bytes, PageSize},
};

use super::MachineState;

/// The shared memory of the processes inspected so far.
#[derive(Default)]
pub struct SharedMemory(SharedByProcesses);

impl SharedMemory {
    /// Adds the shared memory of a process; returns its bytes by page size that earlier processes have as well.
    pub(super) fn add(
        &mut self,
        root: &Root,
        machine: &MachineState,
        pid: u32,
        vmas: &[Vma],
    ) -> BTreeMap<PageSize, Bytes> {
        let mut counted: BTreeMap<PageSize, Bytes> = BTreeMap::new();
        let mut on = |size: Option<PageSize>, bytes: Bytes| {
            if let Some(size) = size.filter(|_| bytes > Bytes::ZERO) {
                *counted.entry(size).or_default() += bytes;
            }
        };
        for (index, view) in self.0.add(root, pid, vmas) {
            let vma = &vmas[index];
            if vma.is_hugetlb {
                on(PageSize::new(vma.kernel_page_size).ok(), view.bytes);
                continue;
            }
            on(machine.pmd(), view.huge);
            on(Some(machine.sizes.base), view.bytes.saturating_sub(view.huge));
        }
        counted
    }
}
