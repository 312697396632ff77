//! Decisions about huge pages, from readings: the demand of a launch line, the changes that it needs, the
//! selection of a backing, and the obstacles.

pub mod backing_selection;
pub mod decide;
pub mod findings;
pub mod malloc;
pub mod mariadb;
pub mod plan;
pub mod planner;
pub mod pool_availability;
pub mod postgres;
pub mod target;
#[cfg(test)]
mod testing;
