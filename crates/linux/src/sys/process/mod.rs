//! Child processes: start, wait with resource usage, kill a whole process group.

pub mod handover;
pub mod orphans;
mod preparation;
mod program;
#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io,
    mem::{self, MaybeUninit},
    os::{fd::AsRawFd, unix::process::ExitStatusExt},
    process::ExitStatus,
    time::{Duration, Instant},
};

use libc::c_int;

pub use self::program::Program;
use super::{checked, file::patient::cpu_of_readings, pidfd, wait_readable};
use crate::units::Bytes;

/// Longest wait for a process that was killed: one in an uninterruptible wait ends later, or never.
const KILL_TIME_LIMIT: Duration = Duration::from_secs(2);

/// A running child that leads its own process group.
#[derive(Debug)]
pub struct GroupLeader {
    pid: libc::pid_t,
    /// Readable once the process has exited; `None` before Linux 5.3.
    pidfd: Option<File>,
    max_rss_of_starter: Bytes,
    reaped: bool,
}

/// Exit status and resource usage of a child, including the children that it waited for.
#[derive(Clone, Copy, Debug)]
pub struct ChildExit {
    pub status: ExitStatus,
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in kernel mode.
    pub sys: Duration,
    /// Maximum resident set of a single process, without hugetlb pages. `None` if it is not larger than that of
    /// the starting process, whose memory the child has until it executes its program.
    pub max_rss: Option<Bytes>,
    /// Minor page faults.
    pub minor_faults: u64,
    /// Major page faults.
    pub major_faults: u64,
}

impl GroupLeader {
    /// A child that was started as the leader of its process group.
    fn of(pid: u32) -> GroupLeader {
        let pidfd = pidfd::open(pid).ok();
        let max_rss_of_starter = own_max_rss();
        GroupLeader { pid: pid as libc::pid_t, pidfd, max_rss_of_starter, reaped: false }
    }

    /// The process id, which is also the process group id.
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Waits at most `timeout` for the leader's exit; a signal to this process ends the wait early.
    ///
    /// After the exit of the leader, the rest of its process group is killed.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<Option<ChildExit>> {
        if self.wait_for_end(timeout)? { self.reap().map(Some) } else { Ok(None) }
    }

    /// Like [`GroupLeader::wait`], but does not reap the leader.
    pub fn wait_for_end(&self, timeout: Duration) -> io::Result<bool> {
        if let Some(pidfd) = &self.pidfd {
            return wait_readable(pidfd, timeout);
        }
        if !self.has_ended()? {
            std::thread::sleep(timeout.min(Duration::from_millis(1)));
        }
        self.has_ended()
    }

    /// True once the leader has exited; does not reap the leader.
    fn has_ended(&self) -> io::Result<bool> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let flags = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
        // SAFETY: `info` is a live siginfo_t, zeroed, which is a valid value.
        let info = unsafe {
            checked(libc::waitid(libc::P_PID, self.pid.unsigned_abs(), info.as_mut_ptr(), flags))?;
            info.assume_init()
        };
        // SAFETY: si_pid is valid for SIGCHLD information, and zero if no child exited.
        Ok(unsafe { info.si_pid() } != 0)
    }

    fn reap(&mut self) -> io::Result<ChildExit> {
        // While the leader is a zombie its process group id is not reused.
        self.kill();
        let mut status = 0;
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: both out-parameters are live and of the right type; zero is a valid rusage.
        let usage = unsafe {
            checked(libc::wait4(self.pid, &raw mut status, 0, usage.as_mut_ptr()))?;
            usage.assume_init()
        };
        self.reaped = true;
        orphans::note_end(self.pid());
        Ok(ChildExit {
            status: ExitStatus::from_raw(status),
            user: duration(usage.ru_utime),
            sys: duration(usage.ru_stime),
            max_rss: Some(max_rss(&usage)).filter(|max| *max > self.max_rss_of_starter),
            minor_faults: usage.ru_minflt.unsigned_abs(),
            major_faults: usage.ru_majflt.unsigned_abs(),
        })
    }

    /// Sends SIGTERM to the process group.
    pub fn terminate(&self) {
        self.signal_group(libc::SIGTERM);
    }

    /// Stops the process group (SIGSTOP) until [`GroupLeader::go_on`].
    pub fn stop(&self) {
        self.signal_group(libc::SIGSTOP);
    }

    /// Lets the stopped process group go on (SIGCONT).
    pub fn go_on(&self) {
        self.signal_group(libc::SIGCONT);
    }

    /// Kills the process group (SIGKILL).
    pub fn kill(&self) {
        self.signal_group(libc::SIGKILL);
    }

    fn signal_group(&self, signal: c_int) {
        if !self.reaped {
            // SAFETY: sends a signal; the group exists, because its leader is not reaped.
            unsafe { libc::kill(-self.pid, signal) };
        }
    }
}

impl Drop for GroupLeader {
    /// Kills the group and reaps the leader, unless it is in an uninterruptible wait.
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.kill();
        let begin = Instant::now();
        loop {
            let left = KILL_TIME_LIMIT.saturating_sub(begin.elapsed());
            match self.wait_for_end(left) {
                Ok(true) => return drop(self.reap()),
                Ok(false) if !left.is_zero() => {}
                _ => return,
            }
        }
    }
}

/// Sends SIGKILL to the process group whose id is `pid`. Succeeds if the group has no processes.
pub fn kill_group(pid: u32) -> io::Result<()> {
    let group = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 1);
    let group = group.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: sends a signal.
    match checked(unsafe { libc::kill(-group, libc::SIGKILL) }) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        killed => killed.map(drop),
    }
}

/// Kills a process (SIGKILL). `is_target` is called when the pid can no longer be reused, and returns
/// whether the pid still belongs to the intended process.
pub fn kill_process(pid: u32, is_target: impl FnOnce() -> bool) -> io::Result<()> {
    signal_process(pid, libc::SIGKILL, is_target)
}

/// Sends SIGQUIT to a process, on the same condition as [`kill_process`].
///
/// It kills a process that does not handle it: `is_target` should check `SigCgt`.
pub fn quit_process(pid: u32, is_target: impl FnOnce() -> bool) -> io::Result<()> {
    signal_process(pid, libc::SIGQUIT, is_target)
}

/// Sends SIGTERM to a process, on the same condition as [`kill_process`].
pub fn terminate_process(pid: u32, is_target: impl FnOnce() -> bool) -> io::Result<()> {
    signal_process(pid, libc::SIGTERM, is_target)
}

/// Sends a signal that this process received to its child `pid`, which it has not reaped.
pub fn pass_on(pid: u32, signal: c_int) -> io::Result<()> {
    signal_process(pid, signal, || true)
}

fn signal_process(pid: u32, signal: c_int, is_target: impl FnOnce() -> bool) -> io::Result<()> {
    let pidfd = pidfd::open(pid)?;
    if !is_target() {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    // SAFETY: sends a signal through a pidfd that we own; no siginfo is passed.
    checked(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    })
    .map(drop)
}

/// Ends what the starter of this process may have left: the ends of child processes are reported again, and signals that
/// request termination arrive. A limit of the size of files makes a write fail, and does not kill this process.
pub fn accept_signals() {
    extern "C" fn ignore(_signal: c_int) {}
    let ignore: extern "C" fn(c_int) = ignore;
    // SAFETY: a set of bits, for which zero is valid.
    let mut requests: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: writes one live set, which is then read; the only handler does nothing.
    unsafe {
        libc::sigemptyset(&raw mut requests);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&raw mut requests, signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const requests, std::ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        // Other programs that this one starts do not inherit a handler.
        libc::signal(libc::SIGXFSZ, ignore as libc::sighandler_t);
    }
}

pub fn is_root() -> bool {
    effective_uid() == 0
}

/// How this process gets a capability that it lacks, as the end of a sentence. Root lacks one only where a container
/// or a user namespace withholds it.
pub fn how_to_get_capability() -> &'static str {
    if is_root() { "grant it to this container or user namespace" } else { "try sudo" }
}

pub fn effective_uid() -> u32 {
    // SAFETY: geteuid always succeeds.
    unsafe { libc::geteuid() }
}

/// Nanoseconds of CLOCK_MONOTONIC, which is also the clock of the JVM's `timenanos`.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// The CPU time of the calling thread since its start, with the readings that other threads did for it.
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)) + cpu_of_readings()
}

/// The largest resident set of this process so far.
fn own_max_rss() -> Bytes {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: writes to one live rusage, for which zero is valid; the call succeeds for RUSAGE_SELF.
    max_rss(&unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    })
}

fn max_rss(usage: &libc::rusage) -> Bytes {
    Bytes::from_kib(usage.ru_maxrss.unsigned_abs())
}

/// Sets SCHED_BATCH for the calling thread, so that it preempts no other thread when it wakes; children are
/// not affected. Errors are ignored.
pub fn set_batch_scheduling() {
    // SAFETY: a struct of numbers, for which zero is valid.
    let parameters: libc::sched_param = unsafe { mem::zeroed() };
    // SAFETY: one live argument, which is only read; 0 is the calling thread.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_BATCH | libc::SCHED_RESET_ON_FORK, &raw const parameters)
    };
}

/// The CPU time of all threads of this process since its start, including those that ended.
pub fn process_cpu() -> Duration {
    Duration::from_nanos(clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID))
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to one live timespec; these clocks always exist.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Clock ticks per second, the unit of CPU time in /proc.
pub fn ticks_per_second() -> u64 {
    // SAFETY: reads a constant of the system.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    // USER_HZ is 100 on x86-64 and arm64.
    u64::try_from(ticks).ok().filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// The id of the calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: gettid always succeeds.
    unsafe { libc::gettid() }.unsigned_abs()
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_usec.unsigned_abs() as u32 * 1000)
}
