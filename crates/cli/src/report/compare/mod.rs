//! The reports of `hugewise compare`.

mod group;
mod html;
mod plots;
mod plotted;
#[cfg(test)]
mod samples;
mod text;
pub mod words;

pub use html::html;
pub use text::text;
