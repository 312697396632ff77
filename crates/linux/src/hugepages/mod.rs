//! Huge pages as the kernel offers them: page sizes, pools, THP modes, and what is free.

pub mod backing;
pub mod base_page;
pub mod contiguity;
pub mod headroom;
pub mod movable_blocks;
pub mod page_sizes;
pub mod pools;
pub mod thp;
