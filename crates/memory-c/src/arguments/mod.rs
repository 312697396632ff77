//! Arguments from C: validated as far as possible, and copied.

#![allow(unsafe_code)]

#[cfg(test)]
mod tests;

use crate::error::Failure;
use std::{
    ffi::{CStr, c_char, c_void},
    ops::Range,
    ptr, slice,
};

/// Copies a string argument.
///
/// # Safety
/// `text` is NULL, or a string with a final zero byte that does not change during this call.
pub(crate) unsafe fn text(text: *const c_char, name: &str) -> Result<String, Failure> {
    if text.is_null() {
        return Err(Failure::argument(format!("{name} is NULL")));
    }
    // SAFETY: not NULL; the caller guarantees the rest.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(str::to_owned).map_err(|_| Failure::argument(format!("{name} is not UTF-8")))
}

/// An output argument.
pub(crate) struct OutputPointer<T>(*mut T);

impl<T: Copy> OutputPointer<T> {
    /// # Safety
    /// `at` is NULL, or writable by this thread alone until the call ends.
    pub(crate) unsafe fn new(at: *mut T, name: &str) -> Result<OutputPointer<T>, Failure> {
        writable(at, name).map(OutputPointer)
    }

    pub(crate) fn write(&self, value: T) {
        // SAFETY: `new` checked NULL and alignment; its caller guarantees that it is writable.
        unsafe { self.0.write(value) }
    }
}

/// An output array of `len` items; NULL is allowed if `len` is 0.
///
/// # Safety
/// `start` is NULL, or `len` items there are writable by this thread alone until the call ends.
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
    // SAFETY: not NULL, aligned, not too long; the caller guarantees the rest. Items are numbers, for which
    // every bit pattern is valid.
    Ok(unsafe { slice::from_raw_parts_mut(start, len) })
}

fn writable<T>(at: *mut T, name: &str) -> Result<*mut T, Failure> {
    if at.is_null() {
        return Err(Failure::argument(format!("{name} is NULL")));
    }
    if !at.is_aligned() {
        let bytes = align_of::<T>();
        return Err(Failure::argument(format!("{name} ({at:p}) is not aligned to {bytes} bytes")));
    }
    Ok(at)
}

/// Reads the size in the first field of a struct argument: `sizeof` in the header that the program was
/// compiled with.
///
/// # Safety
/// `at` is NULL, or points to a struct whose first field is its size as u64.
unsafe fn struct_size<T>(at: *const T, first: usize, name: &str) -> Result<usize, Failure> {
    /// Larger than any struct of this interface: a larger value means that the field was not set.
    const MAX_STRUCT_BYTES: u64 = 4096;
    let at = writable(at.cast_mut(), name)?;
    // SAFETY: not NULL, aligned for T and so for its first field; the caller guarantees the rest.
    let size = unsafe { at.cast::<u64>().read() };
    if size < first as u64 || size > MAX_STRUCT_BYTES {
        return Err(Failure::argument(format!("{name}->struct_size is {size}: set it to sizeof *{name}")));
    }
    Ok(size as usize)
}

/// Copies an input struct that may be of another version; the default for NULL.
///
/// Fields that an older program does not have keep their default. Fields that this library does not have must
/// be zero. `first` is the size of the struct in its first version, in bytes.
///
/// # Safety
/// `from` is NULL, or points to the number of bytes in its first field, a u64; any bytes are valid for T.
pub(crate) unsafe fn copy_versioned<T: Copy + Default>(
    from: *const T,
    first: usize,
    name: &str,
) -> Result<T, Failure> {
    let mut known = T::default();
    if from.is_null() {
        return Ok(known);
    }
    // SAFETY: guaranteed by the caller.
    let size = unsafe { struct_size(from, first, name) }?;
    // SAFETY: the caller guarantees `size` bytes.
    let bytes = unsafe { slice::from_raw_parts(from.cast::<u8>(), size) };
    if bytes.iter().skip(size_of::<T>()).any(|byte| *byte != 0) {
        let version = env!("CARGO_PKG_VERSION");
        let text = format!("{name} sets a field that this libhugewise, {version}, does not have");
        return Err(Failure::new(libc::E2BIG, text));
    }
    let both = size.min(size_of::<T>());
    // SAFETY: both have at least `both` bytes and do not overlap.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut known).cast::<u8>(), both) };
    Ok(known)
}

/// An output struct that may be of another version.
pub(crate) struct VersionedOutput<T> {
    at: *mut T,
    size: usize,
}

impl<T: Copy> VersionedOutput<T> {
    /// `None` if `at` is NULL.
    ///
    /// # Safety
    /// `at` is NULL, or the number of bytes in its first field, a u64, is writable there by this thread alone
    /// until the call ends.
    pub(crate) unsafe fn new(
        at: *mut T,
        first: usize,
        name: &str,
    ) -> Result<Option<VersionedOutput<T>>, Failure> {
        if at.is_null() {
            return Ok(None);
        }
        // SAFETY: guaranteed by the caller.
        let size = unsafe { struct_size(at, first, name) }?;
        Ok(Some(VersionedOutput { at, size }))
    }

    /// Writes all fields except the size, and zeroes those that this library does not have.
    pub(crate) fn write(&self, value: &T) {
        let both = self.size.min(size_of::<T>());
        let from: *const u8 = ptr::from_ref(value).cast();
        let (to, skip) = (self.at.cast::<u8>(), size_of::<u64>());
        // SAFETY: `new` checked that the size covers at least the first field; its caller guarantees that it
        // is writable.
        unsafe {
            ptr::copy_nonoverlapping(from.add(skip), to.add(skip), both - skip);
            ptr::write_bytes(to.add(both), 0, self.size - both);
        }
    }
}

/// The addresses of memory of the caller, which must not be empty.
pub(crate) fn addresses(start: *const c_void, len: usize) -> Result<Range<u64>, Failure> {
    if start.is_null() {
        return Err(Failure::argument("start is NULL"));
    }
    if len == 0 {
        return Err(Failure::argument("len is 0"));
    }
    let first = start.expose_provenance();
    let end = first
        .checked_add(len)
        .ok_or_else(|| Failure::argument(format!("start + len {len} exceeds the address space")))?;
    Ok(first as u64..end as u64)
}
