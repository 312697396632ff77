//! Huge pages of the kernel: page sizes, pools, THP settings, and free huge pages.

pub mod backing;
pub mod base_page;
pub mod contiguity;
pub mod headroom;
pub mod movable_blocks;
pub mod page_reporting;
pub mod page_sizes;
pub mod pool_use;
pub mod pools;
pub mod thp;
pub mod touch;
