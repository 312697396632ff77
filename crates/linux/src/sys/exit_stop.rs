//! Stops processes at their exit, while their memory is still mapped.
//!
//! Only the leading thread of a process is traced (ptrace(2), `PTRACE_SEIZE` and `PTRACE_O_TRACEEXIT`), and
//! the leading threads of the processes that it forks: other threads start, end and receive signals as they
//! do without tracing. No other process can trace a traced thread during that time.

use std::{io, mem::MaybeUninit};

use libc::{c_int, pid_t};

use super::checked;

/// Signals whose default is to stop the process.
const STOP_SIGNALS: [c_int; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Calls `at_exit` with the pid of `first`, a child of this process, and, with `descendants`, of each traced
/// descendant when it exits; the process is stopped during the call. Returns once `first` exits, after that
/// call.
///
/// Without CAP_SYS_PTRACE, a traced process gains no privileges by executing a set-user-ID program:
/// descendants, which may execute one, should then not be traced.
///
/// Needs a thread of its own, because the kernel ties tracing to the thread: processes still traced are
/// released when the thread ends. `first` must not be reaped before this returns.
pub fn at_exits(first: u32, descendants: bool, at_exit: &mut dyn FnMut(u32)) -> io::Result<()> {
    let first = first as pid_t;
    let forks = if descendants { libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK } else { 0 };
    let options = libc::PTRACE_O_TRACEEXIT | forks;
    request(libc::PTRACE_SEIZE, first, options)?;
    loop {
        let (pid, code, status) = match next_event() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(()),
            event => event?,
        };
        let is_dead = !matches!(code, libc::CLD_TRAPPED | libc::CLD_STOPPED);
        if is_dead && pid == first {
            return Ok(());
        }
        // Consumes the event. The parent of a descendant is notified of its death only after that.
        wait(libc::P_PID, pid, libc::WEXITED | libc::WSTOPPED | libc::WNOHANG)?;
        let (signal, event) = (status & 0xff, status >> 8);
        // A process that was killed at the same time answers ESRCH; its death is the next event.
        let _ = match event {
            _ if is_dead => Ok(()),
            libc::PTRACE_EVENT_EXIT => {
                at_exit(pid.unsigned_abs());
                let released = request(libc::PTRACE_DETACH, pid, 0);
                if pid == first {
                    return Ok(());
                }
                released
            }
            libc::PTRACE_EVENT_STOP if STOP_SIGNALS.contains(&signal) => request(libc::PTRACE_LISTEN, pid, 0),
            0 => request(libc::PTRACE_CONT, pid, signal),
            _ => request(libc::PTRACE_CONT, pid, 0),
        };
    }
}

/// The pid, `si_code` and `si_status` of the next event of a process that this thread traces; the event stays
/// pending.
fn next_event() -> io::Result<(pid_t, c_int, c_int)> {
    let info = wait(libc::P_ALL, 0, libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT)?;
    // SAFETY: both are valid for SIGCHLD information, and zero without an event.
    Ok(unsafe { (info.si_pid(), info.si_code, info.si_status()) })
}

fn wait(which: libc::idtype_t, pid: pid_t, flags: c_int) -> io::Result<libc::siginfo_t> {
    let flags = flags | libc::__WALL | libc::__WNOTHREAD;
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is a live siginfo_t, zeroed, which is a valid value.
    unsafe {
        checked(libc::waitid(which, pid.unsigned_abs(), info.as_mut_ptr(), flags))?;
        Ok(info.assume_init())
    }
}

fn request(what: libc::c_uint, pid: pid_t, data: c_int) -> io::Result<()> {
    // SAFETY: used only for requests that take a plain number as data and write no memory of ours.
    checked(unsafe { libc::ptrace(what, pid, 0, data as usize) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::{fs, thread, time::Duration};

    use super::{super::process::Program, *};

    /// The exit status of `script`, and the command of each process that exited while its memory was
    /// resident.
    fn exits(script: &str, descendants: bool) -> io::Result<(Option<i32>, Vec<String>)> {
        let mut program = Program::new("sh");
        program.args(["-c", script]);
        let mut child = program.start()?;
        let pid = child.pid();
        let seen = thread::spawn(move || -> io::Result<Vec<String>> {
            let mut seen = Vec::new();
            at_exits(pid, descendants, &mut |exiting| {
                let read = |file| fs::read_to_string(format!("/proc/{exiting}/{file}")).unwrap_or_default();
                if read("statm").split(' ').nth(1).is_some_and(|pages| pages != "0") {
                    seen.push(read("comm").trim().to_owned());
                }
            })?;
            Ok(seen)
        });
        while !child.wait_for_end(Duration::from_secs(10))? {}
        let seen = seen.join().map_err(|_| io::ErrorKind::Other)??;
        let ended = child.wait(Duration::ZERO)?.ok_or(io::ErrorKind::TimedOut)?;
        Ok((ended.status.code(), seen))
    }

    #[test]
    fn every_process_is_seen_with_its_memory_and_ends_as_it_would() -> io::Result<()> {
        // The shell waits until it is traced.
        let traced = "until grep -q 'TracerPid:.[1-9]' /proc/$$/status; do :; done";
        let script =
            format!("{traced}; sleep 0.01; (sleep 1000 & kill -STOP $!; kill -KILL $!; wait); exit 3");
        let (status, seen) = exits(&script, false)?;
        assert_eq!((status, seen), (Some(3), vec!["sh".to_owned()]));
        let (status, seen) = exits(&script, true)?;
        assert_eq!(status, Some(3));
        // Two sleeps, the second of which may be killed while it is still the shell, and two shells.
        let counted = seen.iter().filter(|comm| *comm != "grep").count();
        assert_eq!((counted, seen.last().map(String::as_str)), (4, Some("sh")), "{seen:?}");
        Ok(())
    }
}
