//! The answers to a rehearsed program's system calls.

use std::{collections::BTreeMap, os::fd::RawFd};

use super::{Conditions, Ending, HugetlbCall, HugetlbRequest, Placement, SimulatedPools};
use crate::{
    hugepages::page_sizes::PageSizes,
    pages::ranges::Ranges,
    root::Root,
    sys::ptrace::{self, CallAction, OnlyWith, Supervisor, SystemCall, WatchedCall},
    units::{Bytes, PageSize},
};

const MAP_HUGETLB: u64 = libc::MAP_HUGETLB as u64;
const MAP_FIXED: u64 = libc::MAP_FIXED as u64;
const MAP_SHARED: u64 = libc::MAP_SHARED as u64;
const MAP_ANONYMOUS: u64 = libc::MAP_ANONYMOUS as u64;
const MAP_POPULATE: u64 = libc::MAP_POPULATE as u64;
/// Fails if the addresses are in use, instead of replacing the mapping.
const MAP_FIXED_NOREPLACE: u64 = libc::MAP_FIXED_NOREPLACE as u64;
/// `MFD_HUGETLB` and `SHM_HUGETLB`.
const MFD_HUGETLB: u64 = libc::MFD_HUGETLB as u64;
const SHM_HUGETLB: u64 = libc::SHM_HUGETLB as u64;
const FIXED: u64 = MAP_FIXED | MAP_FIXED_NOREPLACE;
/// Six bits from here hold log2 of the page size; 0 is the default size.
const SIZE_SHIFT: u32 = 26;
const SIZE_MASK: u64 = 0x3f << SIZE_SHIFT;
/// First address of ordinary memory in place of hugetlb pages, which the kernel would have aligned.
const FIRST_HINT: u64 = 0x5000_0000_0000;

/// The system calls to stop at.
pub(super) const WATCHED_CALLS: [WatchedCall; 10] = [
    WatchedCall {
        number: libc::SYS_mmap,
        only_with: Some(OnlyWith::AnyBit(3, (MAP_HUGETLB | MAP_FIXED | MAP_SHARED | MAP_POPULATE) as u32)),
    },
    WatchedCall { number: libc::SYS_read, only_with: Some(OnlyWith::Value(0, libc::STDIN_FILENO as u32)) },
    always(libc::SYS_munmap),
    always(libc::SYS_memfd_create),
    always(libc::SYS_ftruncate),
    always(libc::SYS_fallocate),
    always(libc::SYS_fstatfs),
    always(libc::SYS_shmget),
    always(libc::SYS_shmat),
    always(libc::SYS_shmctl),
];

const fn always(number: libc::c_long) -> WatchedCall {
    WatchedCall { number, only_with: None }
}

fn error(errno: libc::c_int) -> CallAction {
    CallAction::Answer(-i64::from(errno))
}

/// The state of the simulation.
pub(super) struct PoolSimulator {
    sizes: PageSizes,
    pools: SimulatedPools,
    requests: Vec<HugetlbRequest>,
    /// The ranges held by each request: addresses, or offsets for a file.
    held: Vec<Ranges>,
    /// The request of a hugetlb file, by process and descriptor.
    files: BTreeMap<(u32, u64), usize>,
    /// The request of a segment, by SysV id.
    segments: BTreeMap<u64, usize>,
    /// The process of a thread, by thread id.
    processes: BTreeMap<u32, u32>,
    placement: Placement,
    ending: Ending,
    /// Whether the program was killed at its ending.
    pub(super) is_stopped: bool,
    next_hint: u64,
    /// A file with a name that contains "hugepage": before JDK 17 the JVM searches its maps for that word
    /// after mapping a single page as a test.
    hugepage_file: RawFd,
}

impl PoolSimulator {
    pub(super) fn new(conditions: &Conditions<'_>, hugepage_file: RawFd) -> PoolSimulator {
        PoolSimulator {
            sizes: conditions.sizes.clone(),
            pools: conditions.pools.clone(),
            placement: conditions.placement,
            ending: conditions.ending,
            requests: Vec::new(),
            held: Vec::new(),
            files: BTreeMap::new(),
            segments: BTreeMap::new(),
            processes: BTreeMap::new(),
            next_hint: FIRST_HINT,
            is_stopped: false,
            hugepage_file,
        }
    }

    /// All requests, with the bytes still held.
    pub(super) fn into_requests(mut self) -> Vec<HugetlbRequest> {
        for (request, held) in self.requests.iter_mut().zip(&self.held) {
            request.held = Bytes(held.count());
        }
        self.requests
    }

    fn process_of(&mut self, thread: u32) -> u32 {
        *self.processes.entry(thread).or_insert_with(|| {
            let status = Root::live().read(format!("proc/{thread}/status")).unwrap_or_default();
            let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
            group.unwrap_or(thread)
        })
    }

    /// The page size in the flags of a call.
    fn page_size(&self, flags: u64) -> Option<PageSize> {
        match (flags & SIZE_MASK) >> SIZE_SHIFT {
            0 => self.sizes.default_hugetlb,
            log2 => PageSize::new(Bytes(1u64.checked_shl(log2 as u32)?)).ok(),
        }
        .filter(|size| self.sizes.hugetlb.contains(size))
    }

    /// True if the simulated pool has `bytes` left.
    fn has(&self, size: PageSize, bytes: u64) -> bool {
        let all = self.requests.iter().zip(&self.held);
        let held = all.filter(|(r, _)| r.page_size == size).map(|(_, held)| held.count()).sum();
        let wanted = Bytes(held) + Bytes(bytes);
        self.pools.get(&size).is_none_or(|pool| wanted.pages_needed(size) <= *pool)
    }

    /// Records a request; returns its index and whether it is granted.
    fn ask(&mut self, process: u32, page_size: PageSize, means: HugetlbCall, asked: Bytes) -> (usize, bool) {
        let granted = self.has(page_size, asked.0);
        self.requests.push(HugetlbRequest {
            process,
            page_size,
            means,
            start: None,
            asked,
            executable: false,
            granted,
            held: Bytes::ZERO,
            limit: None,
        });
        self.held.push(Ranges::default());
        (self.requests.len() - 1, granted)
    }

    fn mmap(&mut self, call: &mut SystemCall, process: u32) -> CallAction {
        let [address, length, protection, flags, _, offset] = call.arguments;
        // MAP_FIXED replaces existing mappings in the range.
        if flags & MAP_FIXED != 0 && !self.release(process, address, length) {
            return error(libc::EINVAL);
        }
        if flags & MAP_ANONYMOUS != 0 {
            // No page is touched for the program.
            call.arguments[3] &= !MAP_POPULATE;
        }
        if flags & MAP_HUGETLB == 0 {
            let Some(at) = self.file_of(process, call.arguments[4]) else { return CallAction::Make };
            if !self.reserve(at, offset, length) {
                return error(libc::ENOMEM);
            }
            self.place(call, self.requests[at].page_size, length);
            return CallAction::Make;
        }
        let Some(size) = self.page_size(flags) else { return error(libc::EINVAL) };
        let Some(bytes) = Bytes(length).align_up(size) else { return error(libc::EINVAL) };
        if flags & FIXED != 0 && address % size.bytes().0 != 0 {
            return error(libc::EINVAL);
        }
        let (at, granted) = self.ask(process, size, HugetlbCall::Anonymous, bytes);
        self.requests[at].executable = protection & libc::PROT_EXEC as u64 != 0;
        if !granted {
            return error(libc::ENOMEM);
        }
        call.arguments[1] = bytes.0;
        call.arguments[3] = flags & !(MAP_HUGETLB | MAP_POPULATE | SIZE_MASK) | libc::MAP_NORESERVE as u64;
        self.place(call, size, bytes.0);
        if flags & FIXED == 0 && bytes == size.bytes() {
            call.arguments[3] &= !MAP_ANONYMOUS;
            call.arguments[4] = self.hugepage_file as u64;
            call.arguments[5] = 0;
        }
        CallAction::MakeAndReport
    }

    /// Aligns an `mmap` without a fixed address to the huge page size.
    fn place(&mut self, call: &mut SystemCall, size: PageSize, length: u64) {
        let (address, flags) = (call.arguments[0], call.arguments[3]);
        if flags & FIXED == 0 && (address == 0 || address % size.bytes().0 != 0) {
            call.arguments[0] = match self.placement {
                Placement::Upwards => self.next_place(size, length),
                Placement::Downwards { offset } => self.place_below(size, length, offset),
            };
        }
    }

    /// An aligned address range directly below all anonymous ones that are held.
    fn place_below(&self, size: PageSize, length: u64, offset: Bytes) -> u64 {
        let all = self.requests.iter().zip(&self.held);
        let held = all
            .filter(|(request, held)| request.means == HugetlbCall::Anonymous && **held != Ranges::default());
        let lowest = held.filter_map(|(request, _)| request.start).min();
        let end = lowest.unwrap_or(FIRST_HINT.saturating_add(offset.0));
        let start = end.saturating_sub(length);
        start - start % size.bytes().0
    }

    /// An aligned address range that is not used yet.
    fn next_place(&mut self, size: PageSize, length: u64) -> u64 {
        let place = self.next_hint.next_multiple_of(size.bytes().0);
        self.next_hint = place.saturating_add(length).saturating_add(size.bytes().0);
        place
    }

    /// Releases hugetlb memory of a process in this range. `false` if a huge page would be split, which the
    /// kernel refuses.
    fn release(&mut self, process: u32, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length);
        let mapped =
            |request: &HugetlbRequest| request.process == process && request.means == HugetlbCall::Anonymous;
        let cuts = |(request, held): (&HugetlbRequest, &Ranges)| {
            let inside = |address: u64| {
                address % request.page_size.bytes().0 != 0 && held.missing(address, address + 1) == 0
            };
            mapped(request) && (inside(start) || inside(end))
        };
        if self.requests.iter().zip(&self.held).any(cuts) {
            return false;
        }
        for (request, held) in self.requests.iter().zip(&mut self.held) {
            if mapped(request) {
                held.remove(start, end);
            }
        }
        true
    }

    fn file_of(&self, process: u32, descriptor: u64) -> Option<usize> {
        self.files.get(&(process, descriptor & 0xffff_ffff)).copied()
    }

    /// Reserves the pages of a file range that are not reserved yet, for fallocate or mmap.
    fn reserve(&mut self, at: usize, offset: u64, length: u64) -> bool {
        let end = offset.saturating_add(length);
        let missing = self.held[at].missing(offset, end);
        let granted = self.has(self.requests[at].page_size, missing);
        let request = &mut self.requests[at];
        request.asked += Bytes(missing);
        request.granted &= granted;
        if granted {
            self.held[at].insert(offset, end);
        }
        granted
    }

    fn fallocate(&mut self, call: &SystemCall, at: usize) -> CallAction {
        let [_, mode, offset, length, ..] = call.arguments;
        if mode as i32 & libc::FALLOC_FL_PUNCH_HOLE != 0 {
            self.held[at].remove(offset, offset.saturating_add(length));
            return CallAction::Answer(0);
        }
        if self.reserve(at, offset, length) { CallAction::Answer(0) } else { error(libc::ENOSPC) }
    }
}

impl Supervisor for PoolSimulator {
    fn on_entry(&mut self, call: &mut SystemCall) -> CallAction {
        let process = self.process_of(call.thread);
        let arguments = call.arguments;
        match call.number {
            libc::SYS_read if self.ending == Ending::FirstRead => {
                self.is_stopped = true;
                CallAction::Kill
            }
            libc::SYS_mmap => self.mmap(call, process),
            libc::SYS_munmap => match self.release(process, arguments[0], arguments[1]) {
                true => CallAction::Make,
                false => error(libc::EINVAL),
            },
            libc::SYS_memfd_create if arguments[1] & MFD_HUGETLB != 0 => match self.page_size(arguments[1]) {
                None => error(libc::EINVAL),
                Some(size) => {
                    self.ask(process, size, HugetlbCall::File, Bytes::ZERO);
                    call.arguments[1] &= !(MFD_HUGETLB | SIZE_MASK);
                    CallAction::MakeAndReport
                }
            },
            libc::SYS_ftruncate => {
                if let Some(at) = self.file_of(process, call.arguments[0]) {
                    self.requests[at].limit = Some(Bytes(arguments[1]));
                }
                CallAction::Make
            }
            libc::SYS_fallocate => match self.file_of(process, call.arguments[0]) {
                Some(at) => self.fallocate(call, at),
                None => CallAction::Make,
            },
            libc::SYS_fstatfs if self.file_of(process, call.arguments[0]).is_some() => {
                CallAction::MakeAndReport
            }
            libc::SYS_shmget if arguments[2] & SHM_HUGETLB != 0 => match self.page_size(arguments[2]) {
                None => error(libc::EINVAL),
                Some(size) => match self.ask(process, size, HugetlbCall::SharedMemory, Bytes(arguments[1])) {
                    (_, false) => error(libc::ENOMEM),
                    (_, true) => {
                        call.arguments[2] &= !(SHM_HUGETLB | SIZE_MASK);
                        call.arguments[2] |= libc::SHM_NORESERVE as u64;
                        CallAction::MakeAndReport
                    }
                },
            },
            libc::SYS_shmat if self.segments.contains_key(&arguments[0]) => {
                if arguments[1] == 0 {
                    let request = &self.requests[self.segments[&arguments[0]]];
                    let (size, length) = (request.page_size, request.asked.0);
                    call.arguments[1] = self.next_place(size, length);
                }
                CallAction::MakeAndReport
            }
            libc::SYS_shmctl if arguments[1] as i32 == libc::IPC_RMID => {
                // A segment that no process has attached is destroyed at once.
                if let Some(&at) = self.segments.get(&arguments[0]) {
                    if self.requests[at].start.is_none() {
                        self.held[at] = Ranges::default();
                    }
                }
                CallAction::Make
            }
            _ => CallAction::Make,
        }
    }

    fn on_return(&mut self, call: &SystemCall, result: i64) {
        let process = self.process_of(call.thread);
        let last = |requests: &[HugetlbRequest], means| {
            requests.iter().rposition(|r| r.process == process && r.means == means && r.start.is_none())
        };
        match call.number {
            libc::SYS_mmap => {
                if let Some(at) = last(&self.requests, HugetlbCall::Anonymous) {
                    match u64::try_from(result) {
                        Ok(start) => {
                            self.requests[at].start = Some(start);
                            self.held[at].insert(start, start + self.requests[at].asked.0);
                        }
                        Err(_) => self.requests[at].granted = false,
                    }
                }
            }
            libc::SYS_memfd_create => {
                // The request of a file has no start address.
                if let (Ok(descriptor), Some(at)) =
                    (u64::try_from(result), last(&self.requests, HugetlbCall::File))
                {
                    self.files.insert((process, descriptor), at);
                }
            }
            libc::SYS_fstatfs if result == 0 => {
                let Some(at) = self.file_of(process, call.arguments[0]) else { return };
                let block = self.requests[at].page_size.bytes().0 as i64;
                // struct statfs begins with f_type and f_bsize, eight bytes each.
                let believed = [libc::HUGETLBFS_MAGIC.to_ne_bytes(), block.to_ne_bytes()].concat();
                let _ = ptrace::write_memory(call.thread, call.arguments[1], &believed);
            }
            libc::SYS_shmget => {
                if let (Ok(id), Some(at)) =
                    (u64::try_from(result), last(&self.requests, HugetlbCall::SharedMemory))
                {
                    self.segments.insert(id, at);
                    self.held[at].insert(0, self.requests[at].asked.0);
                }
            }
            libc::SYS_shmat => {
                if let (Ok(start), Some(&at)) = (u64::try_from(result), self.segments.get(&call.arguments[0]))
                {
                    self.requests[at].start = Some(start);
                }
            }
            _ => {}
        }
    }

    fn on_exec(&mut self, process: u32) {
        // exec releases anonymous memory.
        for (request, held) in self.requests.iter().zip(&mut self.held) {
            if request.process == process && request.means == HugetlbCall::Anonymous {
                *held = Ranges::default();
            }
        }
    }

    fn on_exit(&mut self, thread: u32) {
        self.processes.remove(&thread);
    }
}
