//! Replacing this process by another program, with an observer process left behind.
//!
//! The program runs as if started directly: same process id, same signal dispositions, no child that it did
//! not start.

use std::{
    convert::Infallible,
    ffi::{CString, OsString},
    io,
    os::unix::ffi::OsStringExt,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use libc::{c_char, c_int, c_ulong};

use super::super::checked;

/// Whether SIGPIPE was ignored when this process started. Rust's runtime ignores it before `main`, so the
/// disposition is read before the runtime starts.
static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

#[used]
// SAFETY: the loader calls each pointer in this section once, before `main`, as a C function; this one takes
// no arguments and uses nothing that is not set up by then.
#[unsafe(link_section = ".init_array")]
static NOTE_SIGPIPE: extern "C" fn() = note_sigpipe;

extern "C" fn note_sigpipe() {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: reads the disposition only; `now` is a live sigaction, for which zero is valid.
    let ignored = unsafe {
        libc::sigaction(libc::SIGPIPE, ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
    };
    SIGPIPE_WAS_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Replaces this process by the program at path `program`. The first argument is its name (`argv[0]`). Returns
/// only on failure.
///
/// Signal mask and ignored signals are those that this process was started with.
pub fn exec(program: &OsString, arguments: &[OsString], environment: &[OsString]) -> io::Result<Infallible> {
    let strings = |all: &[OsString]| {
        all.iter().map(|one| CString::new(one.clone().into_vec())).collect::<Result<Vec<CString>, _>>()
    };
    let (arguments, environment) = (strings(arguments)?, strings(environment)?);
    let program = CString::new(program.clone().into_vec())?;
    let pointers = |all: &[CString]| {
        all.iter().map(|one| one.as_ptr()).chain([ptr::null()]).collect::<Vec<*const c_char>>()
    };
    let (argv, envp) = (pointers(&arguments), pointers(&environment));
    if !SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed) {
        // SAFETY: restores the default action, which Rust's runtime replaced.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    // SAFETY: all strings and both arrays end in a null and live until the call is over.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    let refused = io::Error::last_os_error();
    // SAFETY: broken pipes of this process are errors again, not signals.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    Err(refused)
}

/// Disables THP for this process, also after an exec, and for its children.
pub fn disable_thp() -> io::Result<()> {
    // SAFETY: takes numbers only.
    checked(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1 as c_ulong, 0 as c_ulong, 0, 0) }).map(drop)
}

/// True if orphans among this process's descendants become its children, as those of process 1 do.
pub fn adopts_orphans() -> bool {
    let mut adopts: c_int = 0;
    // SAFETY: writes to one live int.
    let asked = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut adopts) };
    std::process::id() == 1 || (asked == 0 && adopts != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_exec_returns_the_error() {
        let error = exec(&"/no/such".into(), &["no".into()], &[]).err();
        assert!(error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound));
    }
}
