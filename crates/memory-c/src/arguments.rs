//! What C hands in: checked as far as it can be, and copied.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_char},
    slice,
};

use crate::error::Failure;

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
