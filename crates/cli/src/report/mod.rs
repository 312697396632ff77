//! How results are shown. A renderer knows nothing of how a value was gathered.

pub mod check;
mod page;
