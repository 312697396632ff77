//! The registers of a system call on x86-64.

use std::{io, mem::MaybeUninit};

use libc::{c_long, pid_t};

use super::{super::checked, SystemCall};

/// `AUDIT_ARCH_X86_64` of `linux/audit.h`.
pub(super) const AUDIT_ARCH: u32 = 0xc000_003e;

/// The registers of a stopped thread.
pub(super) struct Registers(libc::user_regs_struct);

impl Registers {
    pub(super) fn read(thread: pid_t) -> io::Result<Registers> {
        let mut registers = MaybeUninit::zeroed();
        // SAFETY: PTRACE_GETREGS writes one user_regs_struct, which is live; zero is a valid value of it.
        unsafe {
            checked(libc::ptrace(libc::PTRACE_GETREGS, thread, 0, registers.as_mut_ptr()))?;
            Ok(Registers(registers.assume_init()))
        }
    }

    fn write(&self, thread: pid_t) -> io::Result<()> {
        // SAFETY: PTRACE_SETREGS reads one user_regs_struct, which is live.
        checked(unsafe { libc::ptrace(libc::PTRACE_SETREGS, thread, 0, &raw const self.0) }).map(drop)
    }

    pub(super) fn call(&self, thread: u32) -> SystemCall {
        let r = &self.0;
        SystemCall {
            thread,
            number: r.orig_rax as c_long,
            arguments: [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9],
        }
    }

    pub(super) fn change(&mut self, thread: pid_t, call: &SystemCall) -> io::Result<()> {
        let r = &mut self.0;
        [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = call.arguments;
        self.write(thread)
    }

    /// Skips the call and returns `result` to the program.
    pub(super) fn skip(&mut self, thread: pid_t, result: i64) -> io::Result<()> {
        self.0.orig_rax = u64::MAX;
        self.0.rax = result as u64;
        self.write(thread)
    }

    pub(super) fn result(&self) -> i64 {
        self.0.rax as i64
    }
}
