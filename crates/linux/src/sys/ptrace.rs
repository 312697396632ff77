//! Runs a child program with some of its system calls intercepted.
//!
//! A seccomp filter stops the program at the watched calls only, so that it runs at nearly full speed; ptrace
//! then reads and changes the call (see ptrace(2), `PTRACE_O_TRACESECCOMP`, and
//! `Documentation/userspace-api/seccomp_filter.rst`). No privilege is needed: a process may trace its own
//! children, unless Yama's `ptrace_scope` is 3.

use std::{
    io, mem,
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    ptr,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use libc::{c_int, c_long, c_void, pid_t};

use super::{checked, process::Program};

/// Time between two looks at the time limit and at the interrupt.
const ALARM_INTERVAL: Duration = Duration::from_millis(50);
const ALARM_SIGNAL: c_int = libc::SIGURG;
/// Longest wait for processes that were killed.
const KILL_TIME_LIMIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;

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

/// Why a traced program was ended before its own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    TimedOut,
    Interrupted,
}

/// Runs `program` to its end, at which its remaining descendants are killed; returns its exit status.
///
/// After `timeout`, or when `is_interrupted`, all are killed, and the result is an error of kind `TimedOut` or
/// `Interrupted`.
pub fn supervise(
    program: Program,
    watched: &[WatchedCall],
    timeout: Duration,
    is_interrupted: &(dyn Fn() -> bool + Sync),
    supervisor: &mut dyn Supervisor,
) -> io::Result<ExitStatus> {
    let child = program.start_traced(filter(watched)?)?;
    let begin = Instant::now();
    let stop = move || match () {
        () if is_interrupted() => Some(Stop::Interrupted),
        () if begin.elapsed() >= timeout => Some(Stop::TimedOut),
        () => None,
    };
    let alarm = &Alarm::new()?;
    let (is_ending, (done, waiting)) = (&AtomicBool::new(false), mpsc::channel::<()>());
    let (status, stopped) = thread::scope(|scope| {
        // The wait for a traced thread ends only at an event: the alarm makes the loop of the tracer look at the time.
        scope.spawn(move || {
            while waiting.recv_timeout(ALARM_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                if stop().is_some() || is_ending.load(Ordering::Relaxed) {
                    alarm.ring();
                }
            }
        });
        let first = child.id() as pid_t;
        let mut tracer = Tracer { first, known: Vec::new(), awaited: Vec::new(), is_ending };
        let mut stopped = None;
        let status = tracer.follow(supervisor, &mut || {
            stopped = stopped.or_else(stop);
            stopped.is_some()
        });
        drop(done);
        (status, stopped)
    });
    match stopped {
        Some(Stop::TimedOut) => Err(io::ErrorKind::TimedOut.into()),
        Some(Stop::Interrupted) => Err(io::ErrorKind::Interrupted.into()),
        None => status,
    }
}

/// A signal that ends system calls of one thread.
struct Alarm(libc::pthread_t);

impl Alarm {
    /// For the calling thread.
    fn new() -> io::Result<Alarm> {
        extern "C" fn nothing(_: c_int) {}
        // SAFETY: a struct of numbers, for which zero is valid: no flags, so that calls are not restarted.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        // SAFETY: the handler does nothing. The signal is ignored by default, and used for nothing else.
        unsafe {
            checked(libc::sigaction(ALARM_SIGNAL, &raw const action, ptr::null_mut()))?;
            Ok(Alarm(libc::pthread_self()))
        }
    }

    fn ring(&self) {
        // SAFETY: the thread waits for the one that calls this.
        unsafe { libc::pthread_kill(self.0, ALARM_SIGNAL) };
    }
}

/// The traced threads of a program.
struct Tracer<'a> {
    first: pid_t,
    known: Vec<pid_t>,
    /// Calls whose result is to be reported.
    awaited: Vec<SystemCall>,
    /// Set once they were killed.
    is_ending: &'a AtomicBool,
}

impl Tracer<'_> {
    /// Resumes every traced thread from stop to stop until none is left. At the end of the first process, or once
    /// `is_over`, all are killed.
    fn follow(
        &mut self,
        supervisor: &mut dyn Supervisor,
        is_over: &mut dyn FnMut() -> bool,
    ) -> io::Result<ExitStatus> {
        let mut status_of_first = None;
        let mut killed_at: Option<Instant> = None;
        loop {
            if killed_at.is_none() && is_over() {
                killed_at = Some(Instant::now());
                self.kill_all(status_of_first.is_none());
            }
            if killed_at.is_some_and(|at| at.elapsed() >= KILL_TIME_LIMIT) {
                // The rest is in an uninterruptible wait.
                return status_of_first.ok_or_else(|| io::ErrorKind::TimedOut.into());
            }
            let mut status = 0;
            // Waits for children of this thread only; other threads reap their own children.
            // SAFETY: `status` is live.
            let waited =
                checked(unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) });
            let thread = match waited {
                Ok(thread) => thread,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => break,
                Err(error) => return Err(error),
            };
            if !libc::WIFSTOPPED(status) {
                supervisor.on_exit(thread.unsigned_abs());
                self.known.retain(|&other| other != thread);
                if thread == self.first {
                    status_of_first = Some(ExitStatus::from_raw(status));
                    // The rest is not waited for, such as a daemon that a script starts before `java`.
                    killed_at = Some(Instant::now());
                    self.kill_all(false);
                }
                continue;
            }
            let is_new = !self.known.contains(&thread);
            if is_new {
                self.known.push(thread);
            }
            if killed_at.is_some() {
                kill(thread);
                continue;
            }
            // A thread that was killed at the same time returns ESRCH; its end is reported separately.
            let is_start = thread == self.first && is_new;
            if let Ok(true) = answer_stop(thread, status, is_start, is_new, &mut self.awaited, supervisor) {
                killed_at = Some(Instant::now());
                self.kill_all(status_of_first.is_none());
            }
        }
        status_of_first.ok_or_else(|| io::Error::from_raw_os_error(libc::ECHILD))
    }

    /// Kills the traced threads, and the process group of the first process while its number is not reused.
    fn kill_all(&self, first_exists: bool) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.known.iter().for_each(|thread| kill(*thread));
        if first_exists {
            kill(self.first);
            kill(-self.first);
        }
    }
}

/// Kills the process of a traced thread, or a process group; neither was reaped.
fn kill(thread: pid_t) {
    // SAFETY: sends a signal.
    unsafe { libc::kill(thread, libc::SIGKILL) };
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
