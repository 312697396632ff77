//! Huge-page demand of database servers, as the server itself reports it.

pub mod data_folder;
pub mod postgres;
