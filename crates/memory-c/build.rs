//! Sets the soname of the shared library, so that a program loads only a library of the same ABI version.

#![allow(clippy::print_stdout)]

fn main() {
    // The number is ABI_VERSION of src/error.rs; a test checks that.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libhugewise.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}
