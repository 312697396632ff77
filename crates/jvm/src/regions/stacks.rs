//! Thread stacks, found through stack pointers and glibc's thread descriptors.

use std::ops::Range;

use hugewise_linux::{proc::smaps::Vma, root::Root};

use super::{
    RegionKind,
    claims::{Claims, PAGE, is_allocatable},
    memory::Memory,
};

pub(super) struct Thread {
    /// Thread id in the PID namespace of this process.
    tid: u32,
    /// `comm`, at most 15 bytes.
    name: String,
    /// The kernel reports it only for a thread that waits in a system call.
    stack_pointer: Option<u64>,
}

/// Bytes above the stack pointer that are searched for the thread descriptor.
const MAX_DESCRIPTOR_DISTANCE_BYTES: u64 = 64 << 20;
/// Upper bound of glibc's descriptor with the TLS of libraries behind it, in bytes.
const MAX_DESCRIPTOR_BYTES: u64 = 16 << 10;
/// Bytes per read in the search for a descriptor.
const READ_BYTES: u64 = 64 << 10;
/// Maximum of `-Xss`, with room for guard pages.
const MAX_STACK_BYTES: u64 = (1 << 30) + (1 << 20);
/// Upper bound of the guard pages at the end of a stack, in bytes.
const MAX_GUARD_BYTES: u64 = 1 << 20;
const MOST_THREADS: usize = 65_536;

pub(super) fn threads(root: &Root, pid: u32) -> Vec<Thread> {
    let tasks = format!("proc/{pid}/task");
    let tids = root.list(&tasks).unwrap_or_default();
    tids.into_iter()
        .take(MOST_THREADS)
        .filter_map(|tid| {
            let call = root.read(format!("{tasks}/{tid}/syscall")).unwrap_or_default();
            let name = root.read(format!("{tasks}/{tid}/comm")).unwrap_or_default();
            Some(Thread {
                tid: tid.parse().ok()?,
                name: name.trim_end().to_owned(),
                stack_pointer: stack_pointer(&call),
            })
        })
        .collect()
}

/// The second-last word: `202 0x7f14d37ff990 … 0x7ffdd08bc320 0x7f14d4d50f16`.
fn stack_pointer(call: &str) -> Option<u64> {
    let word = call.split_whitespace().rev().nth(1)?;
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

/// Claims the stacks of waiting threads, then stacks that end where their mapping ends.
pub(super) fn claim(memory: Option<&dyn Memory>, threads: &[Thread], claims: &mut Claims) {
    for vma in claims.vmas().iter().filter(|vma| vma.name.starts_with("[stack")) {
        claims.claim(vma.addresses.clone(), "thread stack (first)", RegionKind::ThreadStack);
    }
    for thread in threads {
        let Some(pointer) = thread.stack_pointer else { continue };
        let Some(vma) = claims.vma(pointer).filter(|vma| is_stack_like(vma)) else { continue };
        if claims.kind_at(pointer).is_some() {
            continue;
        }
        let end = vma.addresses.end.min(pointer.saturating_add(MAX_DESCRIPTOR_DISTANCE_BYTES));
        let reported = memory.and_then(|memory| Descriptor::find(memory, pointer & !(PAGE - 1), end));
        let bounds = match reported {
            Some(Descriptor { bounds: Some(bounds), .. })
                if bounds.contains(&pointer) && claims.is_free(&bounds) =>
            {
                bounds
            }
            Some(Descriptor { at, .. }) => vma.addresses.start..(at | (PAGE - 1)).saturating_add(1).min(end),
            None => vma.addresses.clone(),
        };
        claim_one(bounds, &thread.name, claims);
    }
    let Some(memory) = memory else { return };
    for vma in claims.vmas().iter().filter(|vma| is_stack_like(vma)) {
        for free in claims.gaps(vma.addresses.clone()) {
            claim_if_stack(memory, threads, &free, claims);
        }
    }
}

/// Claims the stack that ends at the end of `range`, if there is one.
pub(super) fn claim_if_stack(
    memory: &dyn Memory,
    threads: &[Thread],
    range: &Range<u64>,
    claims: &mut Claims,
) {
    let from = range.end.saturating_sub(MAX_DESCRIPTOR_BYTES).max(range.start) & !(PAGE - 1);
    let Some(descriptor) = Descriptor::find(memory, from, range.end) else { return };
    let Some(bounds) = descriptor.bounds.filter(|bounds| bounds.end == range.end) else { return };
    if !claims.is_free(&bounds) {
        return;
    }
    // The descriptor contains the thread id in the thread's own PID namespace, which mostly equals that in
    // ours.
    let thread = threads.iter().find(|thread| descriptor.numbers.contains(&thread.tid));
    claim_one(bounds, thread.map_or("?", |thread| &thread.name), claims);
}

fn claim_one(bounds: Range<u64>, name: &str, claims: &mut Claims) {
    let bounds = guard(claims, bounds.start)..bounds.end;
    claims.claim(bounds, &format!("thread stack ({name})"), RegionKind::ThreadStack);
}

fn is_stack_like(vma: &Vma) -> bool {
    is_allocatable(vma) && vma.permissions.starts_with("rw")
}

/// glibc's descriptor of a thread. It is at the upper end of the stack and, on x86-64, begins with pointers
/// to itself.
struct Descriptor {
    at: u64,
    /// Stack as glibc mapped it, guard pages included.
    bounds: Option<Range<u64>>,
    /// Candidates for the thread id.
    numbers: Vec<u32>,
}

impl Descriptor {
    /// First descriptor between two addresses.
    fn find(memory: &dyn Memory, from: u64, to: u64) -> Option<Descriptor> {
        let mut at = from;
        while at < to {
            let words = memory.words(at, (to - at).min(READ_BYTES) as usize / 8)?;
            // Descriptors are 64-byte aligned.
            for index in (0..words.len().saturating_sub(2)).step_by(8) {
                let here = at + index as u64 * 8;
                if words[index] == here && words[index + 2] == here {
                    let bytes = (to - here).min(MAX_DESCRIPTOR_BYTES);
                    return Some(Descriptor::read(here, &memory.words(here, bytes as usize / 8)?));
                }
            }
            at += READ_BYTES;
        }
        None
    }

    fn read(at: u64, words: &[u64]) -> Descriptor {
        let bounds = words.windows(2).find_map(|pair| {
            let end = pair[0].checked_add(pair[1])?;
            let plausible = pair[0] != 0 && pair[1] <= MAX_STACK_BYTES;
            let holds = plausible && pair[0] < at && at < end && end - at <= MAX_DESCRIPTOR_BYTES;
            (holds && pair[0] % PAGE == 0 && end % PAGE == 0).then_some(pair[0]..end)
        });
        let numbers = words.iter().take(128).flat_map(|word| [*word as u32, (*word >> 32) as u32]);
        Descriptor { at, bounds, numbers: numbers.filter(|number| *number > 1).collect() }
    }
}

/// Start of the guard pages before `start`.
fn guard(claims: &Claims, start: u64) -> u64 {
    let before = start.checked_sub(1).and_then(|before| claims.vma(before));
    let guard = before.filter(|vma| {
        vma.permissions.starts_with("---")
            && vma.addresses.end == start
            && vma.addresses.end - vma.addresses.start <= MAX_GUARD_BYTES
    });
    guard.map_or(start, |vma| vma.addresses.start)
}

#[cfg(test)]
mod tests {
    use super::{super::memory::fake::FakeMemory, *};

    #[test]
    fn a_descriptor_shows_the_stack_around_it() {
        let mut memory = FakeMemory::default();
        let mut words = vec![7; 1024];
        // After the first page, in a mapping from 0x10000 to 0x13000.
        (words[520], words[522]) = (0x12040, 0x12040);
        (words[600], words[601], words[602]) = (0x2a, 0x10000, 0x3000);
        memory.words(0x11000, &words);
        let found = Descriptor::find(&memory, 0x11000, 0x13000);
        let found = found.map(|found| (found.at, found.bounds, found.numbers.contains(&0x2a)));
        assert_eq!(found, Some((0x12040, Some(0x10000..0x13000), true)));
        assert!(Descriptor::find(&memory, 0x11000, 0x12000).is_none());
    }

    #[test]
    fn the_stack_pointer_is_reported_of_a_thread_that_waits() {
        let waiting = "202 0x7f14d37ff990 0x109 0x48a7 0x0 0x0 0xffffffff 0x7ffdd08bc320 0x7f14d4d50f16\n";
        assert_eq!(stack_pointer(waiting), Some(0x7ffd_d08b_c320));
        assert_eq!(stack_pointer("-1 0x7ffc 0x0\n"), Some(0x7ffc));
        assert_eq!(stack_pointer("running\n"), None);
    }
}
