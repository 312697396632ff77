//! Recordings: what the kernel and a JVM did, by thread and by time, in a file.

mod begin;
mod costs;
mod events;
mod jvm;
mod means;
mod model;
mod pace;
mod reader;
mod samples;
mod session;
mod summary;
mod tail;
mod threads;
mod writer;

pub use jvm::switch_off;
pub use model::*;
pub use reader::{Ending, Reader, RecordingError};
pub use samples::facts;
pub use session::{Assignment, RecordError, Recorded, Target, record};
pub use summary::{HugePages, Stalls, Summary};
pub use writer::Writer;
