//! The memory that the content of a recording may take.

/// Most memory for the content of a recording, in bytes: a small file can expand to any size.
pub(super) const MAX_KEPT_BYTES: usize = 512 << 20;

/// Memory left for a recording, and the entries for which there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    pub(super) left_bytes: usize,
    /// Number of lines, pauses, safepoints and threads in pauses that were not kept.
    pub excess: u64,
}

impl Room {
    /// Takes the memory of `count` values of type `T`; false if there is not enough.
    pub(super) fn take<T>(&mut self, count: usize) -> bool {
        match size_of::<T>().checked_mul(count).and_then(|bytes| self.left_bytes.checked_sub(bytes)) {
            Some(left) => {
                self.left_bytes = left;
                true
            }
            None => {
                self.excess += 1;
                false
            }
        }
    }
}
