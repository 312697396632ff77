//! Pages of an address range: their number by size, and the reasons why they are not larger.

pub mod count;
pub mod coverage;
pub mod folios;
pub mod frames;
pub mod occupancy;
pub mod ranges;
pub mod reason;
pub mod views;
