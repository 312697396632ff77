//! Return values of the functions, and the last error of each thread.

// The exported names are unique: no other library has the prefix hugewise_.
#![allow(unsafe_code)]

use std::{
    cell::RefCell,
    ffi::{CString, c_char, c_int},
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::cancellation::uncancelled;

/// The version of this interface, which must be the same in program and library. Functions, and fields at the
/// end of structs with a struct_size, may be added without a new version.
pub const ABI_VERSION: u32 = 1;

/// Success.
pub const OK: c_int = 0;

/// Failure; hugewise_last_error() has the reason.
pub const FAILED: c_int = -1;

/// The value is unknown, which is not zero; hugewise_last_error() has the reason.
pub const UNKNOWN: c_int = 1;

/// A status other than HUGEWISE_OK, with its reason.
#[derive(Debug)]
pub struct Failure {
    status: c_int,
    code: c_int,
    text: String,
}

impl Failure {
    /// A failure; `code` is an errno.
    pub fn new(code: c_int, text: impl Into<String>) -> Failure {
        Failure { status: FAILED, code, text: text.into() }
    }

    /// A failure with EINVAL.
    pub fn argument(text: impl Into<String>) -> Failure {
        Failure::new(libc::EINVAL, text)
    }

    /// An unknown value, with ENODATA.
    pub fn unknown(reason: impl Into<String>) -> Failure {
        Failure { status: UNKNOWN, code: libc::ENODATA, text: reason.into() }
    }
}

thread_local! {
    /// The errno and the message of the last failure.
    static LAST: RefCell<(c_int, CString)> = RefCell::default();
}

/// Runs the body of a function that returns a status, and stores its failure for this thread.
pub(crate) fn status(body: impl FnOnce() -> Result<(), Failure> + Copy) -> c_int {
    uncancelled(|| match guarded(body) {
        Ok(()) => OK,
        Err(failure) => keep(failure),
    })
}

/// Runs the body of a function that returns a value; returns `otherwise` on failure.
///
/// The body only looks up a handle, which is no cancellation point, so that cancellation stays as it is: to disable it takes
/// as long as the look-up.
pub(crate) fn value<T: Copy>(otherwise: T, body: impl FnOnce() -> Result<T, Failure> + Copy) -> T {
    guarded(body).unwrap_or_else(|failure| {
        keep(failure);
        otherwise
    })
}

/// A panic must not cross into C: it would abort the program.
fn guarded<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // Poisoned locks stay in use: their contents are consistent after every statement.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        Err(Failure::new(
            libc::ENOTRECOVERABLE,
            "a bug in libhugewise, described on standard error: please report it",
        ))
    })
}

fn keep(failure: Failure) -> c_int {
    let last = (failure.code, to_c(&failure.text));
    // The thread-local storage of an ending thread may be gone; the status remains.
    let _ = LAST.try_with(|kept| kept.replace(last));
    failure.status
}

/// A C string; zero bytes become blanks.
pub(crate) fn to_c(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// The version of this interface, for programs that load the library at run time to compare with
/// HUGEWISE_ABI_VERSION.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn hugewise_abi_version() -> u32 {
    ABI_VERSION
}

/// The version of the library, for example "0.1.0". Never NULL; valid forever.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn hugewise_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The message of the last call on this thread that failed or returned HUGEWISE_UNKNOWN, in UTF-8: what was
/// tried, the system's answer, and what to do next. "" if there was none.
///
/// Never NULL. Valid until the next failure on this thread or the end of the thread. A successful call does
/// not change it.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn hugewise_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().1.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The errno of the failure that hugewise_last_error() describes; 0 if there was none.
///
/// EINVAL: an argument is wrong. ENOMEM: the memory is not available. ENODATA: the value is unknown. ERANGE:
/// the array is too short. E2BIG: a struct of a later version. ECANCELED: the callback ended the work.
/// ENOTRECOVERABLE: a bug in the library. Others are from the kernel.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn hugewise_last_error_code() -> c_int {
    LAST.try_with(|last| last.borrow().0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last_error() -> String {
        // SAFETY: valid until the next failure of this thread.
        unsafe { CStr::from_ptr(hugewise_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_ends_as_an_error() {
        let nothing: Vec<u8> = Vec::new();
        assert_eq!(value(7, || Ok(nothing[0])), 7);
        assert_eq!(hugewise_last_error_code(), libc::ENOTRECOVERABLE);
        assert!(last_error().contains("a bug in libhugewise"));
    }

    #[test]
    fn a_failure_is_kept_until_the_next() {
        assert_eq!((hugewise_last_error_code(), last_error()), (0, String::new()));
        assert_eq!(status(|| Err(Failure::unknown("no\0 file"))), UNKNOWN);
        assert_eq!(status(|| Ok(())), OK);
        assert_eq!((hugewise_last_error_code(), last_error()), (libc::ENODATA, "no  file".to_owned()));
    }
}
