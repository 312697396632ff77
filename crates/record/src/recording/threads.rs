//! Samples the threads of the recorded processes: names, usage and waits.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hugewise_linux::{
    proc::{
        process,
        task_stat::TaskStat,
        taskstats::{Channel, Delays, TaskStats},
        tree,
    },
    root::Root,
    sys::process::{monotonic_ns, ticks_per_second},
};

use super::model::{DelaysOfThreads, Line, Process, Thread, ThreadDelays, ThreadEnd, ThreadUsage, Usage};

/// The recorded process, its descendants, and their threads, as of the latest sample.
#[derive(Debug)]
pub struct Threads {
    root: Root,
    main: u32,
    processes: BTreeMap<u32, Vec<String>>,
    known: HashMap<u32, Known>,
    ticks: u64,
}

#[derive(Debug)]
struct Known {
    thread: Thread,
    usage: Option<ThreadUsage>,
    delays: Option<Delays>,
}

impl Threads {
    /// For process `main` and its descendants.
    pub fn of(root: &Root, main: u32) -> Threads {
        Threads {
            root: root.clone(),
            main,
            processes: BTreeMap::new(),
            known: HashMap::new(),
            ticks: ticks_per_second(),
        }
    }

    /// PIDs of the processes seen so far.
    pub fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        self.processes.keys().copied()
    }

    /// PID and TID of the running threads. Processes whose parent has exited are known from earlier samples.
    pub fn now(&self) -> Vec<(u32, u32)> {
        tree::threads_of(&self.root, [self.main].into_iter().chain(self.processes()))
    }

    /// Samples all threads, and their delays if there is a `channel`; returns lines for changes only.
    pub fn sample(&mut self, mut channel: Option<&mut Channel>) -> Vec<Line> {
        let mut lines = Vec::new();
        let (mut usages, mut delays) = (Vec::new(), Vec::new());
        let now = self.now();
        let running: BTreeSet<u32> = now.iter().map(|(pid, _)| *pid).collect();
        self.processes.retain(|pid, _| running.contains(pid));
        for pid in running {
            lines.extend(self.process(pid));
        }
        for (pid, tid) in &now {
            let Some((thread, usage)) = self.read(*pid, *tid) else { continue };
            let known = self.note(thread, &mut lines);
            if known.usage.replace(usage) != Some(usage) {
                usages.push(usage);
            }
            let reported = channel.as_mut().and_then(|channel| channel.thread(*tid).ok());
            if let Some(TaskStats { delays: reported, .. }) = reported {
                if known.delays.replace(reported) != Some(reported) {
                    delays.push(ThreadDelays { tid: *tid, delays: reported });
                }
            }
        }
        let running: BTreeSet<u32> = now.into_iter().map(|(_, tid)| tid).collect();
        self.known.retain(|tid, _| running.contains(tid));
        let ns = monotonic_ns();
        if !usages.is_empty() {
            lines.push(Line::Usage(Usage { ns, threads: usages }));
        }
        if !delays.is_empty() {
            lines.push(Line::Delays(DelaysOfThreads { ns, threads: delays }));
        }
        lines
    }

    /// A line for a thread of another process whose events are recorded, such as khugepaged.
    pub fn foreign_thread(&self, tid: u32) -> Option<Line> {
        self.read(tid, tid).map(|(thread, _)| Line::Thread(thread))
    }

    /// The line of an exited thread, if it was a recorded one, also in a process that started and exited
    /// between two samples.
    pub fn ended(&self, stats: TaskStats) -> Option<Line> {
        let is_theirs = |pid: u32| self.processes.contains_key(&pid);
        let of_theirs = is_theirs(stats.parent) || stats.pid.is_some_and(is_theirs);
        (of_theirs || self.known.contains_key(&stats.tid)).then(|| {
            Line::ThreadEnd(ThreadEnd {
                ns: monotonic_ns(),
                pid: stats.pid,
                name: stats.name,
                usage: ThreadUsage {
                    tid: stats.tid,
                    user_ns: stats.user_us.saturating_mul(1000),
                    sys_ns: stats.sys_us.saturating_mul(1000),
                    minor_faults: stats.minor_faults,
                    major_faults: stats.major_faults,
                },
                delays: stats.delays,
            })
        })
    }

    /// A line for a process that is new, or has executed another program.
    fn process(&mut self, pid: u32) -> Option<Line> {
        let cmdline = self.root.read(format!("proc/{pid}/cmdline")).ok()?;
        let command: Vec<String> = cmdline.split_terminator('\0').map(str::to_owned).collect();
        if self.processes.get(&pid) == Some(&command) {
            return None;
        }
        let process = process::Process::read(&self.root, pid).ok()?;
        self.processes.insert(pid, command);
        Some(Line::Process(Process {
            ns: monotonic_ns(),
            pid,
            name: process.name,
            command: process.command,
            pid_inside: process.pid_inside,
        }))
    }

    fn note(&mut self, thread: Thread, lines: &mut Vec<Line>) -> &mut Known {
        let known = self.known.entry(thread.tid).or_insert_with(|| Known {
            thread: Thread { started_ticks: u64::MAX, ..thread.clone() },
            usage: None,
            delays: None,
        });
        if known.thread.started_ticks != thread.started_ticks {
            (known.usage, known.delays) = (None, None);
        }
        if (known.thread.started_ticks, &known.thread.name) != (thread.started_ticks, &thread.name) {
            lines.push(Line::Thread(thread.clone()));
            known.thread = thread;
        }
        known
    }

    fn read(&self, pid: u32, tid: u32) -> Option<(Thread, ThreadUsage)> {
        let stat = self.root.read(format!("proc/{pid}/task/{tid}/stat")).ok()?;
        let stat = TaskStat::parse(&stat)?;
        let ns = |ticks: u64| u64::try_from(u128::from(ticks) * 1_000_000_000 / u128::from(self.ticks)).ok();
        let usage = ThreadUsage {
            tid,
            user_ns: ns(stat.user_ticks)?,
            sys_ns: ns(stat.sys_ticks)?,
            minor_faults: stat.minor_faults,
            major_faults: stat.major_faults,
        };
        let thread = Thread {
            ns: monotonic_ns(),
            tid,
            pid,
            name: stat.name.to_owned(),
            started_ticks: stat.started_ticks,
        };
        Some((thread, usage))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "814 (GC) Thread#0) S 1 814 814 0 -1 4194304 77 0 5 0 300 200 0 0 20 0 9 0 4711 0 0";

    #[test]
    fn only_what_changed_is_reported_again() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let task = folder.path().join("proc/814/task/814");
        std::fs::create_dir_all(&task)?;
        std::fs::write(folder.path().join("proc/814/cmdline"), "java\0A\0")?;
        std::fs::write(folder.path().join("proc/814/status"), "Name:\tjava\nState:\tS\nVmSize:\t4 kB\n")?;
        std::fs::write(task.join("stat"), STAT)?;
        let mut threads = Threads::of(&Root::at(folder.path()), 814);
        let kinds = |lines: &[Line]| -> Vec<&'static str> {
            lines
                .iter()
                .map(|line| match line {
                    Line::Process(_) => "process",
                    Line::Thread(_) => "thread",
                    Line::Usage(_) => "usage",
                    _ => "another",
                })
                .collect()
        };
        assert_eq!(kinds(&threads.sample(None)), ["process", "thread", "usage"]);
        assert!(threads.sample(None).is_empty());
        std::fs::write(task.join("stat"), STAT.replace(" 77 ", " 78 "))?;
        assert_eq!(kinds(&threads.sample(None)), ["usage"]);
        std::fs::write(task.join("stat"), STAT.replace("4711", "4712"))?;
        assert_eq!(kinds(&threads.sample(None)), ["thread", "usage"], "another thread of this number");
        Ok(())
    }
}
