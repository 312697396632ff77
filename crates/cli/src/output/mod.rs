//! What the commands found out, for people: text for the terminal, HTML for the browser.
//!
//! A renderer takes a plain value and gives text; it knows nothing of how the value was gathered.

pub mod drawing;
pub mod file;
pub mod layout;
pub mod progress;
pub mod terminal;
pub mod web_page;
