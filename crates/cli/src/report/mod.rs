//! What the commands found out, for people: text for the terminal, HTML for the browser.
//!
//! A renderer takes a plain value and gives text; it knows nothing of how the value was gathered.

pub mod apply;
pub mod check;
pub mod collapse;
pub mod compare;
mod drawing;
pub mod explain;
pub mod gclog;
pub mod inspect;
mod page;
pub mod pauses;
pub mod plan;
pub mod pretouch;
pub mod record;
pub mod stall;
pub mod tlb;
pub mod touch;
mod web_page;
