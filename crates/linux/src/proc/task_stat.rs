//! /proc/PID/stat and /proc/PID/task/TID/stat: what a process or a thread has used so far.
//!
//! Source: proc_pid_stat(5).

/// One such line, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskStat<'a> {
    /// Its name, of which the kernel keeps 15 bytes.
    pub name: &'a str,
    /// `R`, `S`, `D`, …
    pub state: char,
    /// Page faults that needed no I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// CPU time in user space, in ticks.
    pub user_ticks: u64,
    /// CPU time in the kernel, in ticks.
    pub sys_ticks: u64,
    /// Its start, in ticks since boot, which tells it from a later one of its number.
    pub started_ticks: u64,
}

impl TaskStat<'_> {
    /// Reads the line; nothing where a field is missing, or is no number.
    #[must_use]
    pub fn parse(text: &str) -> Option<TaskStat<'_>> {
        // The name may hold anything, parentheses and spaces too.
        let (before, after) = text.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        // `state`, the first behind the name, is the third field.
        let field = |number: usize| fields.get(number - 3)?.parse().ok();
        Some(TaskStat {
            name,
            state: fields.first()?.chars().next()?,
            minor_faults: field(10)?,
            major_faults: field(12)?,
            user_ticks: field(14)?,
            sys_ticks: field(15)?,
            started_ticks: field(22)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAT: &str = "814 (GC) Thread#0) S 1 814 814 0 -1 4194304 77 0 5 0 300 200 0 0 20 0 9 0 4711 0 0";

    #[test]
    fn a_name_may_hold_what_it_wants() {
        let expected = TaskStat {
            name: "GC) Thread#0",
            state: 'S',
            minor_faults: 77,
            major_faults: 5,
            user_ticks: 300,
            sys_ticks: 200,
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
