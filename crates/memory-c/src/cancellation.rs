//! Threads are not cancelled during a call of this library.
//!
//! Unwinding a cancelled thread out of Rust code aborts the process. So each exported function that does more than look
//! up a handle disables cancellation (`pthread_setcancelstate(3)`) until its work is done. With
//! `PTHREAD_CANCEL_ASYNCHRONOUS` the thread is unwound when its state is restored: then the frames of this library have
//! nothing to drop, and the ABI that permits unwinding. Before cancellation is disabled, such a thread may be cancelled
//! within the library, and the process ends.

#![allow(unsafe_code)]

use std::{ffi::c_int, ptr};

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// Of glibc and musl.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Runs `work` while the thread cannot be cancelled.
pub(crate) fn uncancelled<T: Copy>(work: impl FnOnce() -> T + Copy) -> T {
    let mut state = 0;
    // SAFETY: writes one live integer.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut state) };
    let result = in_own_frame(work);
    // SAFETY: the state from before the call.
    unsafe { pthread_setcancelstate(state, ptr::null_mut()) };
    result
}

/// `work` drops its values in its own frame, not in that of the caller.
#[inline(never)]
fn in_own_frame<T>(work: impl FnOnce() -> T) -> T {
    work()
}
