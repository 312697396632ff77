//! Recordings of kernel events and JVM logs, and the attribution of JVM pauses to causes.

pub mod attribution;
pub mod recording;
