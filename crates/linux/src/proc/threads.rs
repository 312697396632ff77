//! The threads of a process: their states in /proc/PID/task/*/stat, and their waits for a CPU in schedstat.

use std::time::Duration;

use crate::root::{ReadError, Root};

/// The number of threads of a process, and of those in uninterruptible sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    pub all: usize,
    /// Threads in state D: waiting for a kernel lock, for memory, or for a device.
    pub stalled: usize,
}

/// Reads the state of every thread of process `pid`, except those that exit during the reading.
pub fn read(root: &Root, pid: u32) -> Result<Threads, ReadError> {
    let folder = format!("proc/{pid}/task");
    let mut threads = Threads::default();
    for thread in root.list(&folder)? {
        let Ok(stat) = root.read(format!("{folder}/{thread}/stat")) else { continue };
        // The name, in parentheses, may contain parentheses.
        let Some(state) = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next()) else {
            continue;
        };
        threads.all += 1;
        threads.stalled += usize::from(state == 'D');
    }
    Ok(threads)
}

/// Time in which the threads of process `pid` that have not ended were ready and had no CPU: the second field
/// of schedstat (`Documentation/scheduler/sched-stats.rst`), in nanoseconds.
pub fn cpu_wait(root: &Root, pid: u32) -> Duration {
    let folder = format!("proc/{pid}/task");
    let wait = |thread: &String| -> Option<Duration> {
        let schedstat = root.read(format!("{folder}/{thread}/schedstat")).ok()?;
        schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
    };
    root.list(&folder).unwrap_or_default().iter().filter_map(wait).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tree;

    #[test]
    fn threads_that_wait_for_the_kernel_are_counted() {
        let (_dir, root) = tree(&[
            ("proc/7/task/7/stat", "7 (a) D) S 1 7"),
            ("proc/7/task/8/stat", "8 (GC Thread#0) D 1 7"),
            ("proc/7/task/9/stat", ""),
        ]);
        assert_eq!(read(&root, 7).ok(), Some(Threads { all: 2, stalled: 1 }));
        assert!(read(&root, 8).is_err());
    }

    #[test]
    fn waits_for_a_cpu_are_summed_over_threads() {
        let (_dir, root) = tree(&[
            ("proc/7/task/7/schedstat", "900 1500 3\n"),
            ("proc/7/task/8/schedstat", "0 500 1\n"),
            ("proc/7/task/9/schedstat", ""),
        ]);
        assert_eq!(cpu_wait(&root, 7), Duration::from_nanos(2000));
        assert_eq!(cpu_wait(&root, 8), Duration::ZERO);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_makes_it_panic(text in any::<String>()) {
            let (_dir, root) = tree(&[("proc/7/task/7/stat", &text)]);
            let _ = read(&root, 7);
        }
    }
}
