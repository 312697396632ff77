//! Free memory that the host of a virtual machine has taken back (free page reporting).
//!
//! The first use of such memory is several times slower than that of memory used seconds ago. Whether a run
//! meets it depends on when, and by what, memory was freed before: a noise of up to 2 s per GiB.

use hugewise_linux::{
    sys::memory::{Advice, Mapping},
    units::Bytes,
};

/// Memory that is got back at most, as a part of the available memory.
const LARGEST_PART: u64 = 2;

/// Makes the host provide `bytes` of free memory, so that the next run does not wait for it. Without effect if
/// memory cannot be populated.
pub(crate) fn get_back(bytes: Bytes, available: Bytes) {
    let bytes = bytes.min(Bytes(available.0 / LARGEST_PART));
    let Ok(memory) = Mapping::anonymous(bytes) else { return };
    let all = 0..memory.len();
    // Blocks as large as those that are given to the host.
    let _ = memory.advise(all.clone(), Advice::HugePage);
    let _ = memory.advise(all, Advice::PopulateWrite);
}
