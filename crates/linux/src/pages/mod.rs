//! The pages under a range of addresses: how many of which size, and why not larger.

pub mod count;
pub mod coverage;
pub mod folios;
pub mod frames;
pub mod occupancy;
pub mod ranges;
pub mod reason;
pub mod views;
