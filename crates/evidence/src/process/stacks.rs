//! Locates the stacks of a process's threads without stopping the threads.

use std::{collections::BTreeMap, ops::Range};

use hugewise_linux::{
    proc::{process::Process, smaps::Vma},
    root::Root,
    units::Bytes,
};

/// Largest guard below a stack; glibc and the JVM use a few base pages.
const LARGEST_GUARD: Bytes = Bytes(256 << 10);

/// Mappings that are thread stacks, by first address. The value is the thread, `None` if it is unknown.
#[derive(Debug, Default)]
pub struct Stacks(BTreeMap<u64, Option<String>>);

impl Stacks {
    /// Finds stacks by the stack pointers of threads that wait in the kernel, and by their guards.
    pub fn find(root: &Root, process: &Process, vmas: &[Vma]) -> Stacks {
        let mut stacks = Stacks(vmas.windows(2).filter_map(behind_a_guard).map(|at| (at, None)).collect());
        let folder = format!("proc/{}/task", process.pid);
        for thread in root.list(&folder).unwrap_or_default() {
            let read = |name: &str| root.read(format!("{folder}/{thread}/{name}")).ok();
            let Some(pointer) = read("syscall").as_deref().and_then(stack_pointer) else { continue };
            let index = vmas.partition_point(|vma| vma.addresses.end <= pointer);
            let Some(vma) = vmas.get(index).filter(|vma| is_private_memory(vma)) else { continue };
            if vma.addresses.contains(&pointer) {
                let name = read("comm").map_or_else(String::new, |name| format!(" {}", name.trim()));
                stacks.0.insert(vma.addresses.start, Some(format!("{thread}{name}")));
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
    vma.name.is_empty() && vma.permissions.starts_with("rw-p")
}

/// First address of the second mapping, if the first one is its guard.
fn behind_a_guard(two: &[Vma]) -> Option<u64> {
    let [guard, stack] = two else { return None };
    let Range { start, end } = guard.addresses;
    let fits = end == stack.addresses.start && end - start <= LARGEST_GUARD.0;
    let is_guard = guard.name.is_empty() && guard.permissions.starts_with("---p");
    (fits && is_guard && is_private_memory(stack)).then_some(end)
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

    #[test]
    fn memory_behind_a_small_guard_is_a_stack() {
        let vma = |addresses, permissions: &str| Vma {
            addresses,
            permissions: permissions.to_owned(),
            ..Vma::default()
        };
        let stack = vma(0x2000..0x80_2000, "rw-p");
        assert_eq!(behind_a_guard(&[vma(0x1000..0x2000, "---p"), stack.clone()]), Some(0x2000));
        assert_eq!(behind_a_guard(&[vma(0x1000..0x2000, "r--p"), stack.clone()]), None);
        assert_eq!(behind_a_guard(&[vma(0x1000..0x1800, "---p"), stack]), None);
    }
}
