//! Makes the shared library run on glibc 2.28, even if linked with a newer one.
//!
//! The linker binds each function to its newest version. Functions of later versions than 2.28 that Rust's
//! standard library uses are defined here, hidden in the library: those that only moved to another library
//! file (2.34) jump to their old version, the new ones (2.30, 2.33) to the system call. Only for a shared
//! library: in a static one these definitions would apply to the whole program.

#![allow(unsafe_code)]

use std::{
    arch::global_asm,
    ffi::{c_char, c_int, c_long},
};

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp "
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b "
    };
}

/// Binds `name` to an old version of it.
macro_rules! old {
    ($name:literal, $x86_64:literal) => {
        #[cfg(target_arch = "x86_64")]
        old!(of $name, $x86_64);
        // All are in the first version of glibc on aarch64.
        #[cfg(target_arch = "aarch64")]
        old!(of $name, "GLIBC_2.17");
    };
    (of $name:literal, $version:literal) => {
        global_asm!(
            concat!(".symver old_", $name, ", ", $name, "@", $version),
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ": ", jump!(), "old_", $name),
        );
    };
}

old!("dlsym", "GLIBC_2.2.5");
old!("pthread_attr_setstacksize", "GLIBC_2.2.5");
old!("pthread_attr_getstack", "GLIBC_2.2.5");
old!("pthread_create", "GLIBC_2.2.5");
old!("pthread_detach", "GLIBC_2.2.5");
old!("pthread_getattr_np", "GLIBC_2.2.5");
old!("pthread_join", "GLIBC_2.2.5");
old!("pthread_key_create", "GLIBC_2.2.5");
old!("pthread_key_delete", "GLIBC_2.2.5");
old!("pthread_setname_np", "GLIBC_2.12");
old!("pthread_setspecific", "GLIBC_2.2.5");

/// Binds `name` to the function `target`.
macro_rules! own {
    ($name:literal, $target:path) => {
        global_asm!(
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ": ", jump!(), "{target}"),
            target = sym $target,
        );
    };
}

own!("stat64", stat);
own!("lstat64", lstat);
own!("fstat64", fstat);
own!("gettid", gettid);

// struct stat64 is that of the kernel on both architectures.
extern "C" fn stat(path: *const c_char, found: *mut libc::stat64) -> c_int {
    // SAFETY: as stat64(3) is called.
    unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, found, 0) as c_int }
}

extern "C" fn lstat(path: *const c_char, found: *mut libc::stat64) -> c_int {
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: as lstat64(3) is called.
    unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, found, flags) as c_int }
}

extern "C" fn fstat(file: c_int, found: *mut libc::stat64) -> c_int {
    // SAFETY: as fstat64(3) is called.
    unsafe { libc::syscall(libc::SYS_fstat, c_long::from(file), found) as c_int }
}

extern "C" fn gettid() -> c_int {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as c_int }
}
