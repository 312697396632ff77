//! How a function answers, and what is kept of its failure for the thread that called it.

// The exported names: no other library has names that begin with hugewise_.
#![allow(unsafe_code)]

use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_int},
    panic::{AssertUnwindSafe, catch_unwind},
};

/// The version of this interface. A program is served by a library of the same number; functions,
/// and fields at the end of structs that carry their size, may be added without a new one.
pub const ABI_VERSION: u32 = 1;

/// Done.
pub const OK: c_int = 0;

/// Not done: hugewise_last_error() says why.
pub const FAILED: c_int = -1;

/// The kernel did not say: nothing is known, which is not zero. hugewise_last_error() says why.
pub const COULD_NOT_TELL: c_int = 1;

/// Why a function did not do what it was asked to.
#[derive(Debug)]
pub struct Failure {
    status: c_int,
    code: c_int,
    text: String,
}

impl Failure {
    /// Not done; the code is an errno.
    pub fn new(code: c_int, text: impl Into<String>) -> Failure {
        Failure { status: FAILED, code, text: text.into() }
    }

    /// An argument is wrong.
    pub fn argument(text: impl Into<String>) -> Failure {
        Failure::new(libc::EINVAL, text)
    }

    /// The kernel did not say.
    pub fn could_not_tell(reason: impl Into<String>) -> Failure {
        Failure { status: COULD_NOT_TELL, code: libc::ENODATA, text: reason.into() }
    }
}

struct Last {
    code: c_int,
    text: CString,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last { code: 0, text: CString::default() });
}

/// Runs the body of a function that returns a status, and keeps its failure for this thread.
pub(crate) fn status(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match guarded(body) {
        Ok(()) => OK,
        Err(failure) => keep(failure),
    }
}

/// The same for a function that returns a value, and `otherwise` where it fails.
pub(crate) fn value<T>(otherwise: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    guarded(body).unwrap_or_else(|failure| {
        keep(failure);
        otherwise
    })
}

/// A panic must not cross into C: it would end the program.
fn guarded<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // What a panic leaves half done is not looked at again: locks pass on their contents, which are
    // whole between any two statements.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        Err(Failure::new(
            libc::ENOTRECOVERABLE,
            "a mistake in libhugewise, described on standard error: please report it",
        ))
    })
}

fn keep(failure: Failure) -> c_int {
    let Failure { status, code, text } = failure;
    let text = to_c(&text);
    // While a thread ends, its store may be gone already; the status says enough then.
    let _ = LAST.try_with(|last| last.replace(Last { code, text }));
    status
}

/// Text for C, where a zero byte ends it.
pub(crate) fn to_c(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// The version of this interface, to be compared with HUGEWISE_ABI_VERSION by a program that loads
/// the library at run time.
#[unsafe(no_mangle)]
pub extern "C" fn hugewise_abi_version() -> u32 {
    ABI_VERSION
}

/// The version of the library, like "0.1.0". It is never NULL, and stays.
#[unsafe(no_mangle)]
pub extern "C" fn hugewise_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// What the last call that did not return HUGEWISE_OK on this thread tried, what the system answered,
/// and what would help, in UTF-8. "" where there was none.
///
/// Never NULL. Valid until the next call on this thread that fails, or until the thread ends. A call
/// that succeeds leaves it as it is.
#[unsafe(no_mangle)]
pub extern "C" fn hugewise_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The same as a number of errno.h; 0 where there was none.
///
/// EINVAL: an argument is wrong. ENOMEM: the memory could not be had. ENODATA: could not tell.
/// ERANGE: the array is too short. E2BIG: a struct of a later version. ECANCELED: the callback said so.
/// ENOTRECOVERABLE: a mistake in the library. Others are the kernel's.
#[unsafe(no_mangle)]
pub extern "C" fn hugewise_last_error_code() -> c_int {
    LAST.try_with(|last| last.borrow().code).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_error() -> String {
        // SAFETY: text that stays until the next failure of this thread.
        unsafe { CStr::from_ptr(hugewise_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_ends_as_an_error() {
        let nothing: Vec<u8> = Vec::new();
        assert_eq!(value(7, || Ok(nothing[0])), 7);
        assert_eq!(hugewise_last_error_code(), libc::ENOTRECOVERABLE);
        assert!(last_error().contains("a mistake in libhugewise"));
    }

    #[test]
    fn a_failure_is_kept_until_the_next() {
        assert_eq!((hugewise_last_error_code(), last_error()), (0, String::new()));
        assert_eq!(status(|| Err(Failure::could_not_tell("no\0 file"))), COULD_NOT_TELL);
        assert_eq!(status(|| Ok(())), OK);
        assert_eq!((hugewise_last_error_code(), last_error()), (libc::ENODATA, "no  file".to_owned()));
    }
}
