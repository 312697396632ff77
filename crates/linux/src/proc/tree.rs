//! A process and its descendants.

use std::collections::BTreeSet;

use crate::root::Root;

/// The threads of `pid` and its descendants, as (process, thread); `pid` first, parents before their
/// children. Without processes that exit during the reading.
pub fn threads(root: &Root, pid: u32) -> Vec<(u32, u32)> {
    threads_of(root, [pid])
}

/// The threads of `processes` and their descendants, each once. A process whose parent has exited is no
/// longer a descendant: to include it, the caller must list it.
pub fn threads_of(root: &Root, processes: impl IntoIterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut seen = BTreeSet::new();
    let mut tree: Vec<u32> = processes.into_iter().filter(|pid| seen.insert(*pid)).collect();
    let (mut threads, mut at) = (Vec::new(), 0);
    while let Some(&pid) = tree.get(at) {
        for tid in root.list(format!("proc/{pid}/task")).unwrap_or_default() {
            let children = root.read(format!("proc/{pid}/task/{tid}/children")).unwrap_or_default();
            let children = children.split_whitespace().filter_map(|child| child.parse().ok());
            tree.extend(children.filter(|child| seen.insert(*child)));
            threads.extend(tid.parse().ok().map(|tid| (pid, tid)));
        }
        at += 1;
    }
    threads
}

/// `pid` and its running descendants, `pid` first.
pub fn processes(root: &Root, pid: u32) -> Vec<u32> {
    let mut processes: Vec<u32> = threads(root, pid).into_iter().map(|(process, _)| process).collect();
    processes.dedup();
    processes
}

/// The running children of process `pid`.
pub fn children(root: &Root, pid: u32) -> Vec<u32> {
    let threads = root.list(format!("proc/{pid}/task")).unwrap_or_default();
    let of = |tid: &String| root.read(format!("proc/{pid}/task/{tid}/children")).unwrap_or_default();
    let texts: Vec<String> = threads.iter().map(of).collect();
    texts.iter().flat_map(|text| text.split_whitespace()).filter_map(|child| child.parse().ok()).collect()
}

/// The parent of process `pid`; `None` if it has ended or is unknown.
pub fn parent(root: &Root, pid: u32) -> Option<u32> {
    let status = root.read(format!("proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;

    #[test]
    fn children_of_every_thread_are_found_once() {
        let (_dir, root) = tree(&[
            ("proc/7/task/7/children", "9 "),
            ("proc/7/task/8/children", "10 11 "),
            ("proc/9/task/9/children", "10\n"),
            ("proc/10/task/10/children", ""),
        ]);
        assert_eq!(processes(&root, 7), [7, 9, 10], "11 has ended");
        assert_eq!(threads(&root, 7), [(7, 7), (7, 8), (9, 9), (10, 10)]);
        assert_eq!(threads_of(&root, [10, 9]), [(10, 10), (9, 9)]);
        assert_eq!((children(&root, 7), children(&root, 10)), (vec![9, 10, 11], Vec::new()));
        assert_eq!(processes(&root, 5), Vec::<u32>::new());
    }
}
