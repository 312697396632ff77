//! Decisions about huge pages, from readings: what a launch line needs, what to change, what to run on, and
//! what stands in the way.

pub mod availability;
pub mod backing_selection;
pub mod decide;
pub mod findings;
pub mod malloc;
pub mod plan;
pub mod planner;
