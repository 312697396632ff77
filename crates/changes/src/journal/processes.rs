//! The processes of a run that died: they carry its run id in their environment.
//!
//! Any process can have an environment that is endless, or that its user never lets be read. They are therefore read
//! aside, each up to a limit and for a short time, and one that does not answer keeps no other from being found.

use std::{io, time::Duration};

use hugewise_linux::{
    root::Root,
    sys::{
        aside::{Answers, Aside, Deadline},
        process,
    },
};

use super::RUN_VARIABLE;

/// Longest wait for one process, among those of all users.
const FIRST_TIME_LIMIT: Duration = Duration::from_millis(50);
/// Longest wait for the processes that did not answer in this time, all together.
const SECOND_TIME_LIMIT: Duration = Duration::from_secs(1);
/// Largest number of processes that are waited for at once.
const MAX_AT_ONCE: usize = 32;
/// A process id, and what was found.
const ANSWER_BYTES: usize = 5;

/// What was found of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It is not of the run, or has ended by itself.
    Other = 0,
    /// It was ended.
    Ended = 1,
    /// Its environment does not answer.
    Unread = 2,
}

/// What was found of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunProcesses {
    /// The processes that were ended.
    pub ended: Vec<u32>,
    /// The number of processes whose environment was not read in time.
    pub unread: usize,
}

/// Ends the processes that carry the run id in their environment, except this one.
pub fn end_processes_of(root: &Root, run_id: &str, deadline: &Deadline<'_>) -> RunProcesses {
    let mut found = RunProcesses::default();
    if run_id.is_empty() {
        return found;
    }
    let marker = format!("{RUN_VARIABLE}={run_id}");
    let mut left = processes(root);
    let mut slow = Vec::new();
    while !left.is_empty() {
        // Each answer begins with the process that is read next: the last of them is the one that does not answer.
        match pass(root, &marker, &mut left, deadline, &mut found.ended, &mut slow) {
            Ok(()) => {}
            Err(_) => {
                found.unread = left.len();
                break;
            }
        }
    }
    for at_once in slow.chunks(MAX_AT_ONCE) {
        found.unread += again(root, &marker, at_once, deadline, &mut found.ended);
    }
    found
}

/// The processes but this one, those of root first: those of a run are in most cases.
fn processes(root: &Root) -> Vec<u32> {
    let own = std::process::id();
    let pids = root.list("proc").unwrap_or_default().into_iter().filter_map(|name| name.parse().ok());
    let mut pids: Vec<u32> = pids.filter(|pid| *pid != own).collect();
    pids.sort_by_cached_key(|pid| !is_of_root(root, *pid));
    pids
}

fn is_of_root(root: &Root, pid: u32) -> bool {
    let status = root.read(format!("proc/{pid}/status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.is_some_and(|ids| ids.split_whitespace().next() == Some("0"))
}

/// Ends the processes of the run among `left`, in order, and removes those that were read from it. Stops at one that
/// does not answer in time, which it moves to `slow`.
fn pass(
    root: &Root,
    marker: &str,
    left: &mut Vec<u32>,
    deadline: &Deadline<'_>,
    ended: &mut Vec<u32>,
    slow: &mut Vec<u32>,
) -> io::Result<()> {
    deadline.left()?;
    let mut aside =
        Aside::start(&[], |answers| left.iter().try_for_each(|pid| end_one(root, marker, *pid, answers)))?;
    for at in 0..left.len() {
        match next(&mut aside, &deadline.at_most(FIRST_TIME_LIMIT)) {
            Ok((pid, Found::Ended)) => ended.push(pid),
            Ok((pid, Found::Unread)) => slow.push(pid),
            Ok((_, Found::Other)) => {}
            Err(error) => {
                slow.extend(left.drain(..=at).next_back());
                deadline.left()?;
                return if error.kind() == io::ErrorKind::TimedOut { Ok(()) } else { Err(error) };
            }
        }
    }
    left.clear();
    Ok(())
}

/// Tries processes again that were slow, all at the same time; returns the number of those that do not answer.
fn again(root: &Root, marker: &str, slow: &[u32], deadline: &Deadline<'_>, ended: &mut Vec<u32>) -> usize {
    let start = |pid: &u32| Aside::start(&[], |answers| end_one(root, marker, *pid, answers)).ok();
    let asides: Vec<Option<Aside>> = slow.iter().map(start).collect();
    let deadline = deadline.at_most(SECOND_TIME_LIMIT);
    let mut unread = 0;
    for aside in asides {
        match aside.map(|mut aside| next(&mut aside, &deadline)) {
            Some(Ok((pid, Found::Ended))) => ended.push(pid),
            Some(Ok((_, Found::Other))) => {}
            Some(Ok((_, Found::Unread)) | Err(_)) | None => unread += 1,
        }
    }
    unread
}

/// Ends a process if it is one of the run.
fn end_one(root: &Root, marker: &str, pid: u32, answers: &mut Answers) -> io::Result<()> {
    let mut found = Found::Other;
    let carries_it = || match root.read_bytes(format!("proc/{pid}/environ")).map_err(io::Error::from) {
        Ok(environ) => environ.split(|byte| *byte == 0).any(|entry| entry == marker.as_bytes()),
        Err(error) => {
            if error.kind() == io::ErrorKind::TimedOut {
                found = Found::Unread;
            }
            false
        }
    };
    if process::kill_process(pid, carries_it).is_ok() {
        found = Found::Ended;
    }
    let [a, b, c, d] = pid.to_ne_bytes();
    answers.send(&[a, b, c, d, found as u8], None)
}

fn next(aside: &mut Aside, deadline: &Deadline<'_>) -> io::Result<(u32, Found)> {
    let answer = aside.receive(ANSWER_BYTES, deadline)?.bytes;
    let answer = <[u8; ANSWER_BYTES]>::try_from(answer).map_err(|_| io::ErrorKind::InvalidData)?;
    let [pid @ .., found] = answer;
    let found = [Found::Other, Found::Ended].into_iter().find(|known| *known as u8 == found);
    Ok((u32::from_ne_bytes(pid), found.unwrap_or(Found::Unread)))
}

#[cfg(test)]
mod tests {
    use std::{error::Error, fs, process::Command, time::Instant};

    use super::*;

    #[test]
    fn only_processes_of_the_run_are_ended() -> Result<(), Box<dyn Error>> {
        let run_id = format!("test-{}", std::process::id());
        let start = |value: &str| Command::new("sleep").arg("1000").env(RUN_VARIABLE, value).spawn();
        let (mut ours, mut other) = (start(&run_id)?, start(&format!("{run_id}0"))?);
        let deadline = Deadline::after(Duration::from_secs(60), None);
        // Between fork and exec, a child has the environment of this process.
        let begin = Instant::now();
        let mut found = RunProcesses::default();
        while found.ended.is_empty() && begin.elapsed() < Duration::from_secs(30) {
            found = end_processes_of(&Root::live(), &run_id, &deadline);
        }
        let is_alive = other.try_wait()?.is_none();
        other.kill()?;
        other.wait()?;
        assert_eq!(found.ended, [ours.id()]);
        assert!(!ours.wait()?.success() && is_alive);
        assert_eq!(end_processes_of(&Root::live(), "", &deadline), RunProcesses::default());
        Ok(())
    }

    /// The environment is read by the process that it belongs to, which is slow; others are found all the same.
    #[test]
    fn a_process_that_does_not_answer_delays_no_other() -> Result<(), Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        for pid in 1..=3 {
            fs::create_dir_all(dir.path().join(format!("proc/{pid}")))?;
        }
        let expired = Deadline::after(Duration::ZERO, None);
        let found = end_processes_of(&Root::at(dir.path()), "a", &expired);
        assert_eq!(found, RunProcesses { ended: Vec::new(), unread: 3 });
        Ok(())
    }
}
