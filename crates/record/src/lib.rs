//! Recordings of what the kernel and a JVM did, and the attribution of pauses to causes.

pub mod attribution;
pub mod recording;
