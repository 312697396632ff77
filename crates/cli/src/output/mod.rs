//! Shared by the renderers of all commands: terminal text, HTML pages, plots, progress.

pub mod drawing;
pub mod durations;
pub mod file;
pub mod layout;
pub mod pool_use;
pub mod progress;
pub mod standard_error;
pub mod standard_output;
pub mod table;
pub mod terminal;
pub mod web_page;
pub mod words;
