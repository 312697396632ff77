//! Recordings: files of kernel events, thread usage and JVM logs, by thread and time.

mod events;
mod jvm;
mod jvm_messages;
mod jvm_reader;
mod jvm_work;
mod model;
mod reader;
mod samples;
mod sampling_interval;
mod session;
mod sources;
mod start;
mod summary;
mod tail;
mod threads;
mod touch_cost;
mod writer;

pub use jvm_work::switch_off;
pub(crate) use model::memory_waits_ns;
pub use model::*;
pub use reader::{Ending, Reader, RecordingError};
pub use samples::facts;
pub use session::{RecordingResult, record};
pub use start::{Assignment, RecordError, Target};
pub use summary::{HugePages, Stalls, Summary};
pub use writer::Writer;
