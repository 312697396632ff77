//! Runs a child program with some of its system calls intercepted.
//!
//! A seccomp filter stops the program at the watched calls only, so that it runs at nearly full speed; ptrace
//! then reads and changes the call (see ptrace(2), `PTRACE_O_TRACESECCOMP`, and
//! `Documentation/userspace-api/seccomp_filter.rst`). No privilege is needed: a process may trace its own
//! children, unless Yama's `ptrace_scope` is 3.

use std::{
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, Command, ExitStatus},
    sync::mpsc,
    thread,
    time::Duration,
};

use libc::{c_int, c_long, c_ulong, c_void, pid_t};

use super::checked;

#[cfg(target_arch = "aarch64")]
#[path = "ptrace_aarch64.rs"]
mod registers;
#[cfg(target_arch = "x86_64")]
#[path = "ptrace_x86_64.rs"]
mod registers;

/// A system call of a traced program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemCall {
    /// The thread id of the caller.
    pub thread: u32,
    /// The system call number, libc's `SYS_…`.
    pub number: c_long,
    /// The arguments; unused ones are undefined.
    pub arguments: [u64; 6],
}

/// A system call to stop at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedCall {
    pub number: c_long,
    /// Stop only if an argument fulfils this.
    pub only_with: Option<OnlyWith>,
}

/// A condition on the lower 32 bits of the argument with this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnlyWith {
    /// One of these bits is set.
    AnyBit(usize, u32),
    /// It has this value.
    Value(usize, u32),
}

/// The handling of an intercepted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAction {
    /// Make the call with the arguments as they are now.
    Make,
    /// Make the call and report its result.
    MakeAndReport,
    /// Do not make the call; the program gets this result (an error as a negative errno).
    Answer(i64),
    /// Do not make the call; all processes are killed.
    Kill,
}

/// Handles the intercepted calls of a traced program.
pub trait Supervisor {
    /// Before a watched call.
    fn on_entry(&mut self, call: &mut SystemCall) -> CallAction;
    /// After a call, with the kernel's result (an error as a negative errno).
    fn on_return(&mut self, call: &SystemCall, result: i64);
    /// After an exec, which replaces the memory of the process.
    fn on_exec(&mut self, process: u32);
    fn on_exit(&mut self, thread: u32);
}

/// Runs `command` and all its descendants to their end; returns the exit status of the command.
///
/// After `timeout` all are killed, and the result is an error of kind `TimedOut`. `started` receives the
/// child, to take its pipes.
pub fn supervise(
    mut command: Command,
    watched: &[WatchedCall],
    timeout: Duration,
    started: impl FnOnce(&mut Child),
    supervisor: &mut dyn Supervisor,
) -> io::Result<ExitStatus> {
    let filter = filter(watched)?;
    let prepare = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: prctl and ptrace are async-signal-safe; the filter outlives the calls that read it.
        unsafe {
            checked(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0))?;
            checked(libc::prctl(
                libc::PR_SET_NO_NEW_PRIVS,
                1 as c_ulong,
                0 as c_ulong,
                0 as c_ulong,
                0 as c_ulong,
            ))?;
            checked(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program))?;
        }
        Ok(())
    };
    command.process_group(0);
    // SAFETY: the closure runs between fork and exec and makes only the calls above.
    let mut child = unsafe { command.pre_exec(prepare) }.spawn()?;
    let first = child.id() as pid_t;
    started(&mut child);
    drop(command); // Closes our ends of its pipes.

    let (done, waiting) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        let late = waiting.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout);
        if late {
            // SAFETY: sends a signal to an existing group: its leader is reaped only by the loop below, which
            // ends this wait first.
            unsafe { libc::kill(-first, libc::SIGKILL) };
        }
        late
    });
    let status = follow(first, supervisor);
    drop(done);
    match (watchdog.join(), status) {
        (Ok(true), _) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        (_, status) => status,
    }
}

/// Resumes every traced thread from stop to stop until none is left.
fn follow(first: pid_t, supervisor: &mut dyn Supervisor) -> io::Result<ExitStatus> {
    let mut known: Vec<pid_t> = Vec::new();
    let mut awaited: Vec<SystemCall> = Vec::new();
    let mut status_of_first = None;
    loop {
        let mut status = 0;
        // Waits for children of this thread only; other threads reap their own children.
        // SAFETY: `status` is live.
        let waited = checked(unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) });
        let thread = match waited {
            Ok(thread) => thread,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => break,
            Err(error) => return Err(error),
        };
        if !libc::WIFSTOPPED(status) {
            supervisor.on_exit(thread.unsigned_abs());
            known.retain(|&other| other != thread);
            if thread == first {
                status_of_first = Some(ExitStatus::from_raw(status));
            }
            continue;
        }
        let is_new = !known.contains(&thread);
        if is_new {
            known.push(thread);
        }
        // A thread that was killed at the same time returns ESRCH; its end is reported separately.
        let is_start = thread == first && is_new;
        if let Ok(true) = answer_stop(thread, status, is_start, is_new, &mut awaited, supervisor) {
            // SAFETY: sends a signal to a group whose leader is reaped by this loop only, and was not yet.
            unsafe { libc::kill(-first, libc::SIGKILL) };
        }
    }
    status_of_first.ok_or_else(|| io::Error::from_raw_os_error(libc::ECHILD))
}

/// Resumes a stopped thread; `true` if all processes are to be killed instead.
fn answer_stop(
    thread: pid_t,
    status: c_int,
    is_start: bool,
    is_new: bool,
    awaited: &mut Vec<SystemCall>,
    supervisor: &mut dyn Supervisor,
) -> io::Result<bool> {
    let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
    if is_start {
        let options = libc::PTRACE_O_TRACESECCOMP
            | libc::PTRACE_O_TRACEEXEC
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_EXITKILL;
        request(libc::PTRACE_SETOPTIONS, thread, options)?;
        request(libc::PTRACE_CONT, thread, 0)?;
        return Ok(false);
    }
    let (mut resume, mut delivered) = (libc::PTRACE_CONT, 0);
    match (signal, event) {
        (libc::SIGTRAP, libc::PTRACE_EVENT_SECCOMP) => {
            let mut registers = registers::Registers::read(thread)?;
            let before = registers.call(thread.unsigned_abs());
            let mut call = before;
            match supervisor.on_entry(&mut call) {
                CallAction::Answer(result) => registers.skip(thread, result)?,
                CallAction::Kill => return Ok(true),
                then => {
                    if call != before {
                        registers.change(thread, &call)?;
                    }
                    if then == CallAction::MakeAndReport {
                        awaited.push(call);
                        resume = libc::PTRACE_SYSCALL;
                    }
                }
            }
        }
        // With PTRACE_O_TRACESYSGOOD: the return from a call with `MakeAndReport`.
        (signal, 0) if signal == libc::SIGTRAP | 0x80 => {
            let result = registers::Registers::read(thread)?.result();
            if let Some(at) = awaited.iter().position(|call| call.thread == thread.unsigned_abs()) {
                supervisor.on_return(&awaited.swap_remove(at), result);
            }
        }
        (libc::SIGTRAP, libc::PTRACE_EVENT_EXEC) => supervisor.on_exec(thread.unsigned_abs()),
        // The initial stop of a new thread, without a sender.
        (libc::SIGSTOP, 0) if is_new => {}
        (signal, 0) => delivered = signal,
        _ => {}
    }
    request(resume, thread, delivered).map(|()| false)
}

/// Writes to the memory of a stopped thread.
pub fn write_memory(thread: u32, address: u64, bytes: &[u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes.len() };
    // SAFETY: reads `bytes` only; the kernel checks the address, which is in the other process.
    let written = checked(unsafe {
        libc::process_vm_writev(thread as pid_t, &raw const local, 1, &raw const remote, 1, 0)
    })?;
    if written.unsigned_abs() == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn request(what: libc::c_uint, thread: pid_t, data: c_int) -> io::Result<()> {
    // SAFETY: used only for requests that take a plain number as data and write no memory of ours.
    checked(unsafe { libc::ptrace(what, thread, 0, data as usize) }).map(drop)
}

/// The seccomp filter: stop at watched calls, allow all others.
///
/// Programs of another architecture (32 bit on a 64-bit kernel) are not watched.
fn filter(watched: &[WatchedCall]) -> io::Result<Vec<libc::sock_filter>> {
    const NUMBER: u32 = 0; // offsetof(struct seccomp_data, …), little-endian as are both architectures.
    const ARCHITECTURE: u32 = 4;
    const ARGUMENTS: u32 = 16;
    let load = |offset| libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: offset };
    let equal = |k, jt, jf| libc::sock_filter { code: 0x15, jt, jf, k };
    let any_bit = |k, jt, jf| libc::sock_filter { code: 0x45, jt, jf, k };
    let argument = |index: usize| load(ARGUMENTS + 8 * index as u32);
    let [allow, trace] = [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_TRACE].map(|k| libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k,
    });
    let mut program = vec![load(ARCHITECTURE), equal(registers::AUDIT_ARCH, 1, 0), allow];
    for call in watched {
        let number = u32::try_from(call.number).map_err(io::Error::other)?;
        program.push(load(NUMBER));
        match call.only_with {
            None => program.extend([equal(number, 0, 1), trace]),
            Some(OnlyWith::AnyBit(index, bits)) => {
                program.extend([equal(number, 0, 3), argument(index), any_bit(bits, 0, 1), trace]);
            }
            Some(OnlyWith::Value(index, value)) => {
                program.extend([equal(number, 0, 3), argument(index), equal(value, 0, 1), trace]);
            }
        }
    }
    program.push(allow);
    Ok(program)
}
