//! How numbers about huge pages are made: experiments, statistics, evidence.

pub mod analysis;
pub mod comparison;
pub mod statistics;
pub mod touch;
