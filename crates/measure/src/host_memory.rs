//! Free memory that the host of a virtual machine has taken back (free page reporting).
//!
//! The first use of such memory is several times slower than that of memory used seconds ago. Whether a run
//! meets it depends on when, and by what, memory was freed before: a noise of up to 2 s per GiB.

use std::io;

use hugewise_linux::{
    sys::memory::{Advice, Mapping},
    units::Bytes,
};

/// Memory that is got back at most, as a part of the available memory.
const LARGEST_PART: u64 = 2;
/// Memory that is populated between two calls of `go_on`.
const STEP: usize = 128 << 20;

/// Makes the host provide `bytes` of free memory, so that the next run does not wait for it, as long as `go_on`.
pub(crate) fn get_back(bytes: Bytes, available: Bytes, go_on: &dyn Fn() -> bool) -> io::Result<()> {
    let bytes = bytes.min(Bytes(available.0 / LARGEST_PART));
    let memory = Mapping::anonymous(bytes)?;
    // Blocks as large as those that are given to the host.
    let _ = memory.advise(0..memory.len(), Advice::HugePage);
    for start in (0..memory.len()).step_by(STEP).take_while(|_| go_on()) {
        memory.advise(start..memory.len().min(start + STEP), Advice::PopulateWrite)?;
    }
    Ok(())
}
