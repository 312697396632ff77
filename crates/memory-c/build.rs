//! Gives the shared library its soname, so that a program finds only a library of the same ABI.

fn main() {
    // The number is ABI_VERSION of src/error.rs; a test holds them together.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libhugewise.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}
