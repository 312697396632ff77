//! How numbers about huge pages are made: experiments, statistics, evidence.

pub mod comparison;
pub mod touch;
