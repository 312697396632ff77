//! The process that fragments memory and holds it until the end of its standard input.

use std::{
    io::{self, Read, Write},
    path::Path,
};

use hugewise_linux::{
    hugepages::page_sizes::PageSizes,
    numa,
    root::Root,
    sys::{file, thread},
    units::Bytes,
};
use serde::{Deserialize, Serialize};

use super::{
    engine::{self, FragmentationOutcome},
    plan::Plan,
};
use crate::execution::Launch;

/// A message on standard output, one line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerMessage {
    /// Memory filled so far.
    Filled(Bytes),
    /// The memory is fragmented and held from now on.
    Ready(Box<FragmentationOutcome>),
    Failed(String),
}

/// The command of the process.
pub fn launch(program: &Path, plan: &Plan) -> Launch {
    Launch::worker(program, "fragment-worker", plan)
}

/// Fragments memory in this process and holds it until the end of standard input.
pub fn run(plan: &Plan) -> io::Result<()> {
    let root = Root::live();
    // Makes the OOM killer choose this process first.
    file::set(Path::new("/proc/self/oom_score_adj"), "1000")?;
    // With several NUMA nodes, the program may run on any of them.
    if let Ok(nodes) = numa::with_memory(&root) {
        let _ = thread::interleave_memory(&nodes);
    }
    let mut reported = Bytes::ZERO;
    let mut progress = |filled: Bytes| {
        if filled.0 >= reported.0 + (128 << 20) {
            reported = filled;
            let _ = send(&WorkerMessage::Filled(filled));
        }
    };
    let done = PageSizes::read(&root).and_then(|sizes| engine::fragment(&root, plan, &sizes, &mut progress));
    match done {
        Ok(fragmented) => {
            send(&WorkerMessage::Ready(Box::new(fragmented.outcome.clone())))?;
            let held = io::stdin().read_to_end(&mut Vec::new()).map(drop);
            drop(fragmented);
            held
        }
        Err(reason) => send(&WorkerMessage::Failed(reason.into())),
    }
}

fn send(said: &WorkerMessage) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, said)?;
    out.write_all(b"\n")?;
    out.flush()
}
