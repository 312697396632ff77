//! What a command, script or service starts; the channel by which its JVMs take options about pages; and the proof that
//! they took them.
//!
//! Before the start, files show which channels there are, and nothing is claimed. After it, the processes show what the
//! program became: these readings are evidence, and never decide what is written.

pub mod channel;
pub mod launcher;
pub mod proof;
mod script_text;
