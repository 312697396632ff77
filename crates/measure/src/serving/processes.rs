//! The processes of a server: what they use, and how they end.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{
    proc::{
        task_stat::{TaskStat, started},
        tree,
    },
    root::Root,
    sys::process::{kill_process, orphans, ticks_per_second},
};

/// Time limit for the end of what servers left.
const ORPHANS_TIME_LIMIT: Duration = Duration::from_secs(2);

/// CPU time and page faults of a process and its descendants, also of those that have ended and were waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) user: Duration,
    pub(super) sys: Duration,
    /// Of the processes that are running.
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
}

impl Usage {
    pub(super) fn read(root: &Root, pid: u32) -> Usage {
        let mut usage = Usage::default();
        let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 / ticks_per_second().max(1) as f64);
        for pid in tree::processes(root, pid) {
            let Ok(text) = root.read(format!("proc/{pid}/stat")) else { continue };
            let Some(stat) = TaskStat::parse(&text) else { continue };
            usage.user += time(stat.user_ticks.saturating_add(stat.children_user_ticks));
            usage.sys += time(stat.sys_ticks.saturating_add(stat.children_sys_ticks));
            usage.minor_faults += stat.minor_faults;
            usage.major_faults += stat.major_faults;
        }
        usage
    }

    /// What was used since `before`.
    pub(super) fn since(self, before: &Usage) -> Usage {
        Usage {
            user: self.user.saturating_sub(before.user),
            sys: self.sys.saturating_sub(before.sys),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
        }
    }
}

/// Processes with their starts, in clock ticks since boot.
pub(super) type Processes = BTreeMap<u32, u64>;

/// A process and its descendants.
pub(super) fn of(root: &Root, pid: u32) -> Processes {
    let started = |pid: u32| started(root, pid).map(|ticks| (pid, ticks));
    tree::processes(root, pid).into_iter().filter_map(started).collect()
}

/// Kills those that are still running.
pub(super) fn kill(root: &Root, processes: &Processes) {
    for known in processes {
        // One that has ended cannot be killed, which is what is wanted.
        let _ = kill_process(*known.0, || is_running(root, &known));
    }
}

/// The processes that this one has adopted.
pub(super) fn orphans(root: &Root) -> Vec<u32> {
    let children = tree::children(root, std::process::id());
    children.into_iter().filter(|pid| !orphans::is_own(*pid)).collect()
}

/// Kills the orphans that servers left, each in a session of its own. Those of `before` are of another command, which
/// may have started them for the servers.
pub(super) fn end_orphans(root: &Root, before: &[u32]) {
    let begin = Instant::now();
    while begin.elapsed() < ORPHANS_TIME_LIMIT {
        let left: Vec<u32> = orphans(root).into_iter().filter(|pid| !before.contains(pid)).collect();
        if left.is_empty() {
            return;
        }
        left.into_iter().for_each(orphans::end);
        // Until they have ended, and theirs were adopted.
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a process is still running.
pub(super) fn is_running(root: &Root, (pid, ticks): &(&u32, &u64)) -> bool {
    started(root, **pid) == Some(**ticks)
}

#[cfg(test)]
mod tests {
    use hugewise_linux::testing::tree;

    use super::*;

    #[test]
    fn time_of_children_that_have_ended_counts() {
        let stat = |ticks: &str| format!("7 (a) S 1 7 7 0 -1 0 10 0 1 0 {ticks} 20 0 1 0 5 0 0");
        let (_dir, root) = tree(&[
            ("proc/7/task/7/children", "8 "),
            ("proc/7/stat", &stat("100 50 300 20")),
            ("proc/8/task/8/children", ""),
            ("proc/8/stat", &stat("10 5 0 0")),
        ]);
        let usage = Usage::read(&root, 7);
        let ticks = |count: u64| Duration::from_secs_f64(count as f64 / ticks_per_second() as f64);
        assert_eq!((usage.user, usage.sys), (ticks(400) + ticks(10), ticks(70) + ticks(5)));
        assert_eq!((usage.minor_faults, usage.major_faults), (20, 2));
        assert_eq!(usage.since(&usage), Usage::default());
    }
}
