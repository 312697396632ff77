//! Whether a captured machine is of the architecture of this one, whose programs are rehearsed.

use std::env::consts::ARCH;

use anyhow::ensure;
use hugewise_jvm::launch::{LaunchLine, read_option_file};
use hugewise_linux::{
    facts::OSRELEASE,
    hugepages::page_sizes::PageSizes,
    root::Root,
    units::{Bytes, PageSize},
};

/// The architectures in the names of kernel releases, by Rust's names.
const NAMES: [(&str, &str); 9] = [
    ("x86_64", "x86_64"),
    ("amd64", "x86_64"),
    ("aarch64", "aarch64"),
    ("arm64", "aarch64"),
    ("ppc64le", "powerpc64"),
    ("powerpc64le", "powerpc64"),
    ("s390x", "s390x"),
    ("riscv64", "riscv64"),
    ("loong64", "loongarch64"),
];

/// Fails if the programs of the captured machine cannot be rehearsed by those of this one.
pub fn check(root: &Root, sizes: &PageSizes, command: &[String]) -> anyhow::Result<()> {
    if root.is_live() {
        return Ok(());
    }
    let release = root.read(OSRELEASE).unwrap_or_default();
    let other = NAMES.iter().find(|(name, _)| release.contains(name)).map(|(_, arch)| *arch);
    let own_base = PageSizes::read(&Root::live()).map(|own| own.base);
    let same_base = own_base.is_ok_and(|own| own == sizes.base);
    let other = other.filter(|other| *other != ARCH);
    ensure!(
        other.is_none() && same_base,
        "the captured machine is {} with base pages of {}, and this one is {ARCH}: a java of this machine has other \
         regions and alignments, so it cannot be rehearsed for it; make the plan on a machine of its kind{}",
        other.unwrap_or(ARCH),
        sizes.base,
        heap_alone(sizes, command)
    );
    Ok(())
}

/// The pages of each size for the heap alone, as the end of a message; empty if the heap is unknown.
fn heap_alone(sizes: &PageSizes, command: &[String]) -> String {
    let line = LaunchLine::parse(command, &read_option_file).and_then(Result::ok);
    let options = line.map(|line| line.options).unwrap_or_default();
    let most = options.iter().rev().find_map(|option| option.strip_prefix("-Xmx")?.parse::<Bytes>().ok());
    let Some(most) = most else { return String::new() };
    let pages = |size: &PageSize| format!("{} pages of {size}", most.pages_needed(*size));
    let all: Vec<String> = sizes.hugetlb.iter().map(pages).collect();
    format!(" (a heap of {most} alone takes {})", all.join(", or "))
}
