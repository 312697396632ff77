//! A sample of a program at its exit, while its memory is still mapped: for `--exact`, which traces it.

use std::{
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use anyhow::Context;
use hugewise_linux::{root::Root, sys::exit_stop};

use super::{
    assignment::ObserverTask,
    sampled_process::{Kept, Process},
};

/// The sample of a process that is traced until its exit.
pub struct ExitSample(Receiver<anyhow::Result<Kept>>);

/// Traces process `pid` on a thread of its own.
pub fn start(pid: u32, assignment: ObserverTask) -> ExitSample {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let root = Root::live();
        let process = Process::new(pid, &root, &assignment);
        let mut sample = Err(anyhow::anyhow!("its exit was not seen"));
        let traced = exit_stop::at_exits(pid, false, &mut |exiting| {
            let (_, resident) = process.heaviest().unwrap_or_default();
            let found = process.regions(exiting);
            sample = found.map(|found| Kept { pid: exiting, at: Duration::ZERO, resident, found });
        });
        // The receiver waits until the end.
        let _ = sender.send(traced.context("it cannot be traced").and(sample));
    });
    ExitSample(receiver)
}

impl ExitSample {
    /// The sample, once the process has ended.
    pub fn join(self) -> anyhow::Result<Kept> {
        self.0.recv().context("the tracing thread ended")?
    }
}
