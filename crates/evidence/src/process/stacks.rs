//! Locates the stacks of a process's threads without stopping the threads.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use hugewise_linux::{
    proc::{
        process::Process,
        smaps::{ThpAdvice, Vma},
    },
    root::Root,
    units::Bytes,
};

/// Largest guard below a stack; glibc and the JVM use a few base pages.
const LARGEST_GUARD: Bytes = Bytes(256 << 10);

/// Mappings that are thread stacks, by first address. The value is the thread, `None` if it is unknown.
#[derive(Debug, Default)]
pub struct Stacks(BTreeMap<u64, Option<String>>);

impl Stacks {
    /// Finds stacks by the stack pointers of threads that wait in the kernel, and by their guards. A guard alone proves
    /// nothing: allocators and runtimes use guards, too. The kernel marks stacks if `marked` (since Linux 6.7, see
    /// [`hugewise_linux::pages::reason::Reason::ThreadStack`]); otherwise a stack behind a guard has the size of one that
    /// is known. `runtime`: whether the process has an allocator of its own, whose heap may contain stacks.
    pub fn find(root: &Root, process: &Process, vmas: &[Vma], marked: bool, runtime: bool) -> Stacks {
        let guarded: BTreeMap<u64, u64> = vmas.windows(2).filter_map(behind_a_guard).collect();
        let mut pointers = Vec::new();
        let folder = format!("proc/{}/task", process.pid);
        for thread in root.list(&folder).unwrap_or_default() {
            let read = |name: &str| root.read(format!("{folder}/{thread}/{name}")).ok();
            let Some(pointer) = read("syscall").as_deref().and_then(stack_pointer) else { continue };
            let name = read("comm").map_or_else(String::new, |name| format!(" {}", name.trim()));
            pointers.push((pointer, format!("{thread}{name}")));
        }
        Stacks::among(vmas, &guarded, pointers, marked, runtime)
    }

    fn among(
        vmas: &[Vma],
        guarded: &BTreeMap<u64, u64>,
        pointers: Vec<(u64, String)>,
        marked: bool,
        runtime: bool,
    ) -> Stacks {
        let is_marked = |vma: &Vma| marked && vma.advice == ThpAdvice::NoHuge;
        let mut stacks = Stacks::default();
        let mut sizes = BTreeSet::new();
        for (pointer, thread) in pointers {
            let index = vmas.partition_point(|vma| vma.addresses.end <= pointer);
            let is_stack = |vma: &&Vma| {
                let start = vma.addresses.start;
                let proven = is_marked(vma) || guarded.contains_key(&start) || !runtime;
                is_private_memory(vma) && vma.addresses.contains(&pointer) && proven
            };
            let Some(vma) = vmas.get(index).filter(is_stack) else { continue };
            sizes.extend(guarded.get(&vma.addresses.start).copied());
            stacks.0.insert(vma.addresses.start, Some(thread));
        }
        for vma in vmas {
            let start = vma.addresses.start;
            let Some(size) = guarded.get(&start) else { continue };
            if is_marked(vma) || (!marked && sizes.contains(size)) {
                stacks.0.entry(start).or_default();
            }
        }
        stacks
    }

    /// The region name if `vma` is a stack.
    pub fn name(&self, vma: &Vma) -> Option<String> {
        self.0.get(&vma.addresses.start).map(|thread| match thread {
            Some(thread) => format!("stack of thread {thread}"),
            None => "stack of a thread".to_owned(),
        })
    }
}

fn is_private_memory(vma: &Vma) -> bool {
    vma.name.is_empty() && vma.permissions.starts_with("rw") && vma.permissions.ends_with('p')
}

/// First address of the second mapping, and the size of both, if the first one is its guard.
fn behind_a_guard(two: &[Vma]) -> Option<(u64, u64)> {
    let [guard, stack] = two else { return None };
    let Range { start, end } = guard.addresses;
    let fits = end == stack.addresses.start && end - start <= LARGEST_GUARD.0;
    let is_guard = guard.name.is_empty() && guard.permissions.starts_with("---p");
    (fits && is_guard && is_private_memory(stack)).then_some((end, stack.addresses.end - start))
}

/// The stack pointer in /proc/PID/task/TID/syscall: the last word but one. `None` while the thread runs.
fn stack_pointer(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace().rev();
    words.next()?;
    u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_pointer_is_known_of_a_thread_that_waits() {
        let waits = "202 0x7f 0x80 0x0 0x0 0x0 0x0 0x7f5c2cdfe100 0x7f5c2ce8c117\n";
        assert_eq!(stack_pointer(waits), Some(0x7f5c_2cdf_e100));
        assert_eq!(stack_pointer("-1 0x7ffd2f84a0c8 0x7f7a\n"), Some(0x7ffd_2f84_a0c8));
        for other in ["running\n", "", "0x1"] {
            assert_eq!(stack_pointer(other), None, "{other}");
        }
    }

    fn vma(addresses: Range<u64>, permissions: &str) -> Vma {
        Vma { addresses, permissions: permissions.to_owned(), ..Vma::default() }
    }

    #[test]
    fn a_small_mapping_without_access_is_a_guard() {
        let stack = vma(0x2000..0x80_2000, "rw-p");
        let behind = |guard| behind_a_guard(&[guard, stack.clone()]);
        assert_eq!(behind(vma(0x1000..0x2000, "---p")), Some((0x2000, 0x80_1000)));
        assert_eq!(behind(vma(0x1000..0x2000, "r--p")), None);
        assert_eq!(behind(vma(0x1000..0x1800, "---p")), None);
    }

    /// Behind guards: a stack with a pointer, another one of its size, and a heap of another size.
    #[test]
    fn a_guard_alone_is_no_witness() {
        let mark = |vma: Vma| Vma { advice: ThpAdvice::NoHuge, ..vma };
        let found = |vmas: &[Vma], pointers: &[u64], marked, runtime| {
            let guarded = vmas.windows(2).filter_map(behind_a_guard).collect();
            let pointers = pointers.iter().map(|at| (*at, "7".to_owned())).collect();
            let stacks = Stacks::among(vmas, &guarded, pointers, marked, runtime);
            stacks.0.into_keys().map(|start| start >> 12).collect::<Vec<_>>()
        };
        let plain = [
            vma(0x1000..0x2000, "---p"),
            vma(0x2000..0x9000, "rw-p"),
            vma(0x11000..0x12000, "---p"),
            vma(0x12000..0x19000, "rw-p"),
            vma(0x21000..0x22000, "---p"),
            vma(0x22000..0x80_0000, "rw-p"),
            vma(0x100_0000..0x200_0000, "rw-p"),
        ];
        assert_eq!(found(&plain, &[0x3000], false, true), [0x2, 0x12]);
        assert_eq!(found(&plain, &[], false, false), [0u64; 0]);
        // A kernel that marks stacks: only marked memory is a stack, or that with a stack pointer behind a guard.
        assert_eq!(found(&plain, &[0x3000], true, true), [0x2]);
        let marked = plain.clone().map(|vma| if vma.addresses.end == 0x19000 { mark(vma) } else { vma });
        assert_eq!(found(&marked, &[0x3000], true, true), [0x2, 0x12]);
        // A goroutine's stack lies in the heap of Go; another program may use any memory as a stack.
        assert_eq!(found(&plain, &[0x100_8000], true, true), [0u64; 0]);
        assert_eq!(found(&plain, &[0x100_8000], true, false), [0x1000]);
    }
}
