//! The registers of a system call on arm64.

use std::{
    io,
    mem::{MaybeUninit, size_of},
};

use libc::{c_int, c_long, c_void, pid_t};

use super::{super::checked, SystemCall};

/// `AUDIT_ARCH_AARCH64` of `linux/audit.h`.
pub(super) const AUDIT_ARCH: u32 = 0xc000_00b7;

const NT_PRSTATUS: usize = 1;
const NT_ARM_SYSTEM_CALL: usize = 0x404;

/// The registers of a stopped thread.
pub(super) struct Registers(libc::user_regs_struct);

impl Registers {
    pub(super) fn read(thread: pid_t) -> io::Result<Registers> {
        let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
        let mut part = libc::iovec {
            iov_base: registers.as_mut_ptr().cast(),
            iov_len: size_of::<libc::user_regs_struct>(),
        };
        // SAFETY: the kernel writes at most iov_len bytes, all of them live; zero is a valid value.
        unsafe {
            checked(libc::ptrace(libc::PTRACE_GETREGSET, thread, NT_PRSTATUS, &raw mut part))?;
            Ok(Registers(registers.assume_init()))
        }
    }

    fn write(&self, thread: pid_t) -> io::Result<()> {
        write_set(thread, NT_PRSTATUS, &self.0)
    }

    pub(super) fn call(&self, thread: u32) -> SystemCall {
        let r = &self.0.regs;
        SystemCall { thread, number: r[8] as c_long, arguments: [r[0], r[1], r[2], r[3], r[4], r[5]] }
    }

    pub(super) fn change(&mut self, thread: pid_t, call: &SystemCall) -> io::Result<()> {
        self.0.regs[..6].copy_from_slice(&call.arguments);
        self.write(thread)
    }

    /// Skips the call and returns `result` to the program.
    pub(super) fn skip(&mut self, thread: pid_t, result: i64) -> io::Result<()> {
        let none: c_int = -1;
        write_set(thread, NT_ARM_SYSTEM_CALL, &none)?;
        self.0.regs[0] = result as u64;
        self.write(thread)
    }

    pub(super) fn result(&self) -> i64 {
        self.0.regs[0] as i64
    }
}

fn write_set<T>(thread: pid_t, set: usize, value: &T) -> io::Result<()> {
    let part =
        libc::iovec { iov_base: (&raw const *value).cast_mut().cast::<c_void>(), iov_len: size_of::<T>() };
    // SAFETY: the kernel reads iov_len bytes of `value`, which is live.
    checked(unsafe { libc::ptrace(libc::PTRACE_SETREGSET, thread, set, &raw const part) }).map(drop)
}
