//! Whether a process can answer: its threads may be stopped or held.

use crate::{cgroup::frozen::is_frozen, root::Root};

/// Why process `pid` cannot answer anything now; `None` if no thread of it is known to be held.
///
/// One stopped thread is enough: a JVM answers many questions at a safepoint only, which all threads have to reach.
pub fn reason(root: &Root, pid: u32) -> Option<&'static str> {
    let tasks = root.list(format!("proc/{pid}/task")).unwrap_or_default();
    let states =
        tasks.iter().filter_map(|tid| state(&root.read(format!("proc/{pid}/task/{tid}/stat")).ok()?));
    let of_thread = |state: char| match state {
        'T' => Some("it is stopped"),
        't' => Some("it is stopped by a debugger"),
        _ => None,
    };
    let main = root.read(format!("proc/{pid}/stat")).ok().and_then(|stat| state(&stat));
    if matches!(main, Some('Z' | 'X')) && tasks.len() <= 1 {
        return Some("it is a zombie: it has exited, and its parent has not waited for it");
    }
    states
        .filter_map(of_thread)
        .next()
        .or_else(|| is_frozen(root, pid).then_some("its control group is frozen"))
}

/// The state in the line of `/proc/PID/stat`; the name before it may contain anything.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;

    #[test]
    fn one_stopped_thread_is_enough() {
        let of = |main: &str, other: &str| {
            let (_dir, root) = tree(&[
                ("proc/7/stat", &format!("7 (a) T b) {main} 1 7")),
                ("proc/7/task/7/stat", &format!("7 (a) T b) {main} 1 7")),
                ("proc/7/task/8/stat", &format!("8 (x) {other} 1 7")),
            ]);
            reason(&root, 7)
        };
        assert_eq!(of("S", "R"), None);
        assert_eq!(of("S", "T"), Some("it is stopped"));
        assert_eq!(of("t", "S"), Some("it is stopped by a debugger"));
        // The first thread has exited; others run.
        assert_eq!(of("Z", "S"), None);
        let (_dir, zombie) = tree(&[("proc/7/stat", "7 (a) Z 1"), ("proc/7/task/7/stat", "7 (a) Z 1")]);
        assert!(reason(&zombie, 7).is_some_and(|reason| reason.contains("zombie")));
        let (_dir, none) = tree(&[]);
        assert_eq!(reason(&none, 7), None);
    }
}
