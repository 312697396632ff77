//! /proc/PID/stat and /proc/PID/task/TID/stat: CPU time and page faults of a process or thread.
//!
//! Source: proc_pid_stat(5).

use crate::root::Root;

/// The parsed fields of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskStat<'a> {
    /// The name, cut at 15 bytes by the kernel.
    pub name: &'a str,
    /// The state: `R`, `S`, `D`, …
    pub state: char,
    pub minor_faults: u64,
    pub major_faults: u64,
    /// CPU time in user mode, in clock ticks.
    pub user_ticks: u64,
    /// CPU time in kernel mode, in clock ticks.
    pub sys_ticks: u64,
    /// CPU time in user mode of children that have ended and were waited for, in clock ticks.
    pub children_user_ticks: u64,
    /// CPU time in kernel mode of these children, in clock ticks.
    pub children_sys_ticks: u64,
    /// Start in clock ticks since boot; identifies the process if its pid is reused.
    pub started_ticks: u64,
}

impl TaskStat<'_> {
    /// `None` if a field is missing or not a number.
    pub fn parse(text: &str) -> Option<TaskStat<'_>> {
        // The name may contain parentheses and blanks.
        let (before, after) = text.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        // `state`, the first after the name, is field 3.
        let field = |number: usize| fields.get(number - 3)?.parse().ok();
        Some(TaskStat {
            name,
            state: fields.first()?.chars().next()?,
            minor_faults: field(10)?,
            major_faults: field(12)?,
            user_ticks: field(14)?,
            sys_ticks: field(15)?,
            children_user_ticks: field(16)?,
            children_sys_ticks: field(17)?,
            started_ticks: field(22)?,
        })
    }
}

/// Start of a process in clock ticks since boot; `None` if it does not exist. Unlike other files of a process, this one
/// never waits for its memory.
pub fn started(root: &Root, pid: u32) -> Option<u64> {
    let text = root.read(format!("proc/{pid}/stat")).ok()?;
    TaskStat::parse(&text).map(|stat| stat.started_ticks)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAT: &str = "814 (GC) Thread#0) S 1 814 814 0 -1 4194304 77 0 5 0 300 200 30 20 20 0 9 0 4711 0 0";

    #[test]
    fn a_name_may_contain_parentheses_and_blanks() {
        let expected = TaskStat {
            name: "GC) Thread#0",
            state: 'S',
            minor_faults: 77,
            major_faults: 5,
            user_ticks: 300,
            sys_ticks: 200,
            children_user_ticks: 30,
            children_sys_ticks: 20,
            started_ticks: 4711,
        };
        assert_eq!(TaskStat::parse(STAT), Some(expected));
        assert_eq!(TaskStat::parse("814 (a) S 1"), None);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "(.|\n)*", cut in 0..STAT.len()) {
            let _ = TaskStat::parse(&text);
            let _ = TaskStat::parse(&format!("{}{text}", &STAT[..cut]));
        }
    }
}
