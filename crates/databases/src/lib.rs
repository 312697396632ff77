//! Huge-page demand of database servers: as the server itself reports it, or as a rehearsal of its start shows it.

pub mod data_folder;
pub mod mariadb;
pub mod postgres;
mod program;
