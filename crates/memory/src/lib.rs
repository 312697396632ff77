//! Memory on huge pages: reserve it with a chosen backing, make it present, and prove what it got.
//!
//! A [`region::Region`] is aligned so that every huge page of it is usable, and carries how it was
//! got and, where it fell back, why.

pub mod region;
