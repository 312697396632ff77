//! What C hands in: checked as far as it can be, and copied.

#![allow(unsafe_code)]

#[cfg(test)]
mod tests;

use crate::error::Failure;
use std::{
    ffi::{CStr, c_char},
    ptr, slice,
};

/// Text of the caller.
///
/// # Safety
/// `text` is NULL, or text that ends with a zero byte and stays as it is during this call.
pub(crate) unsafe fn text(text: *const c_char, name: &str) -> Result<String, Failure> {
    if text.is_null() {
        return Err(Failure::argument(format!("{name} is NULL")));
    }
    // SAFETY: not NULL, and the caller answers for the rest.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(str::to_owned).map_err(|_| Failure::argument(format!("{name} is not UTF-8")))
}

/// A place of the caller's to write to.
pub(crate) struct Place<T>(*mut T);

impl<T: Copy> Place<T> {
    /// # Safety
    /// `at` is NULL, or may be written until the call ends, by this thread alone.
    pub(crate) unsafe fn new(at: *mut T, name: &str) -> Result<Place<T>, Failure> {
        writable(at, name).map(Place)
    }

    pub(crate) fn write(&self, value: T) {
        // SAFETY: `new` checked that it is a place, and its caller answers that it may be written.
        unsafe { self.0.write(value) }
    }
}

/// An array of the caller's, of `len` items; NULL is an empty one.
///
/// # Safety
/// `start` is NULL, or `len` items may be written there until the call ends, by this thread alone.
pub(crate) unsafe fn array<'a, T: Copy>(
    start: *mut T,
    len: usize,
    name: &str,
) -> Result<&'a mut [T], Failure> {
    if len == 0 {
        return Ok(&mut []);
    }
    let start = writable(start, name)?;
    if len.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Failure::argument(format!("{name} cannot have {len} items")));
    }
    // SAFETY: not NULL, aligned, not too long, and the caller answers for the rest. Items are
    // numbers, of which every bit pattern is one.
    Ok(unsafe { slice::from_raw_parts_mut(start, len) })
}

fn writable<T>(at: *mut T, name: &str) -> Result<*mut T, Failure> {
    if at.is_null() {
        return Err(Failure::argument(format!("{name} is NULL")));
    }
    if !at.is_aligned() {
        return Err(Failure::argument(format!(
            "{name} ({at:p}) is not aligned to {} bytes",
            align_of::<T>()
        )));
    }
    Ok(at)
}

/// The size that a struct of the caller's begins with: `sizeof` of the header it was compiled with.
///
/// # Safety
/// `at` is NULL, or leads to a struct whose first field is its size as u64.
unsafe fn struct_size<T>(at: *const T, first: usize, name: &str) -> Result<usize, Failure> {
    /// More than any struct here will ever have: such a size was not set.
    const LARGEST: u64 = 4096;
    let at = writable(at.cast_mut(), name)?;
    // SAFETY: not NULL, aligned for T and so for its first field; the caller answers for the rest.
    let size = unsafe { at.cast::<u64>().read() };
    if size < first as u64 || size > LARGEST {
        return Err(Failure::argument(format!("{name}->struct_size is {size}: set it to sizeof *{name}")));
    }
    Ok(size as usize)
}

/// A struct of the caller's that grows from version to version; its default if it is NULL.
///
/// What an older program does not know keeps its default. What a newer program knows, and this library
/// does not, must be zero. `first` is the size that the struct had at first.
///
/// # Safety
/// `from` is NULL, or leads to as many bytes as its first field says, a u64; T may be of any bytes.
pub(crate) unsafe fn grown<T: Copy + Default>(
    from: *const T,
    first: usize,
    name: &str,
) -> Result<T, Failure> {
    let mut known = T::default();
    if from.is_null() {
        return Ok(known);
    }
    // SAFETY: the caller answers for it.
    let size = unsafe { struct_size(from, first, name) }?;
    // SAFETY: so many bytes are there.
    let bytes = unsafe { slice::from_raw_parts(from.cast::<u8>(), size) };
    if bytes.iter().skip(size_of::<T>()).any(|byte| *byte != 0) {
        return Err(Failure::new(
            libc::E2BIG,
            format!(
                "{name} has a field set that this libhugewise, {}, does not know",
                env!("CARGO_PKG_VERSION")
            ),
        ));
    }
    let both = size.min(size_of::<T>());
    // SAFETY: both are so long, and apart from each other.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut known).cast::<u8>(), both) };
    Ok(known)
}

/// A struct of the caller's that grows from version to version, to write to.
pub(crate) struct GrownPlace<T> {
    at: *mut T,
    size: usize,
}

impl<T: Copy> GrownPlace<T> {
    /// Nothing where `at` is NULL.
    ///
    /// # Safety
    /// `at` is NULL, or as many bytes may be written there as its first field says, a u64, until the
    /// call ends, by this thread alone.
    pub(crate) unsafe fn new(at: *mut T, first: usize, name: &str) -> Result<Option<GrownPlace<T>>, Failure> {
        if at.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller answers for it.
        let size = unsafe { struct_size(at, first, name) }?;
        Ok(Some(GrownPlace { at, size }))
    }

    /// Writes all but the size, and zero to what this library does not know.
    pub(crate) fn write(&self, value: &T) {
        let both = self.size.min(size_of::<T>());
        let from: *const u8 = ptr::from_ref(value).cast();
        let (to, skip) = (self.at.cast::<u8>(), size_of::<u64>());
        // SAFETY: `new` checked that the place is so long, and longer than its size's field; its caller
        // answers that it may be written.
        unsafe {
            ptr::copy_nonoverlapping(from.add(skip), to.add(skip), both - skip);
            ptr::write_bytes(to.add(both), 0, self.size - both);
        }
    }
}
