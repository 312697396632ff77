//! Programs other than java: huge pages through the C library.

use hugewise_measure::verdict::Verdict;

use crate::{
    TestResult, Trial,
    compiling::compile,
    native::rounds_in_full_run,
    needs::Need::{Compiler, Pool, Root, Thp},
    start::{INCONCLUSIVE, covered, hugewise, reason_left_out, rounds, run_command, says},
    trial,
};

const HEAD: &str = "
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    size_t bytes = 64 << 20;
";
const TAIL: &str = "
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
    usleep(500000);
    printf(\"touched: %d\\n\", memory[4096] + 41);
    return 0;
}
";
const MALLOC: &str = "volatile char *memory = malloc(bytes);";
/// Maps much more than it touches.
const PART_OF_A_BLOCK: &str = "volatile char *memory = malloc(8 * bytes);";
const MMAP: &str =
    "volatile char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);";

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Pool, Thp, Compiler];
    vec![
        trial("program: malloc gets its pages", &needs, malloc_gets_its_pages),
        trial("program: a block touched in part gets its pages", &needs, part_of_a_block_gets_its_pages),
        trial("program: mmap falls back, with the cause", &needs, mmap_falls_back),
        trial("program: SysV shared memory is skipped", &needs, shared_memory_is_left_out),
    ]
}

fn malloc_gets_its_pages() -> TestResult {
    let folder = tempfile::tempdir()?;
    let program = compile(folder.path(), "allocate", &format!("{HEAD}{MALLOC}{TAIL}"))?;
    let make = || {
        let mut command = hugewise(&["compare", "--json", "--rounds", "1", "--metric"]);
        command.args(["touched=touched: ([0-9]+)", "--", &program]);
        // The user's setting for huge pages is replaced, the other one is kept.
        command.env("GLIBC_TUNABLES", "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=0");
        command
    };
    let comparison = run_command(&make)?.ended_with(INCONCLUSIVE)?.comparison()?;
    covered(&comparison, "thp", 0.8)?;
    covered(&comparison, "hugetlb", 0.8)?;
    for round in rounds(&comparison, "base")? {
        assert_eq!(round.figures.get("touched"), Some(&42.0), "{round:#?}");
        assert!(round.coverage.is_some_and(|share| share <= 0.05), "{round:#?}");
        assert!(round.figures["peak_memory"] >= f64::from(64 << 20), "{round:#?}");
    }
    Ok(())
}

fn part_of_a_block_gets_its_pages() -> TestResult {
    let folder = tempfile::tempdir()?;
    let program = compile(folder.path(), "allocate", &format!("{HEAD}{PART_OF_A_BLOCK}{TAIL}"))?;
    let rounds = rounds_in_full_run(2).to_string();
    let make = || hugewise(&["compare", "--json", "--rounds", &rounds, "-b", "hugetlb", "--", &program]);
    let comparison = run_command(&make)?.ended_with(INCONCLUSIVE)?.comparison()?;
    covered(&comparison, "hugetlb", 0.8)
}

fn mmap_falls_back() -> TestResult {
    let folder = tempfile::tempdir()?;
    let program = compile(folder.path(), "allocate", &format!("{HEAD}{MMAP}{TAIL}"))?;
    let count = rounds_in_full_run(2);
    let rounds = count.to_string();
    let make = || hugewise(&["compare", "--json", "--rounds", &rounds, "-b", "hugetlb", "--", &program]);
    let comparison = run_command(&make)?.ended_with(1)?.comparison()?;
    let row = &comparison.backings[1];
    assert_eq!((row.backing.to_string().as_str(), row.verdict), ("hugetlb", Verdict::FellBack), "{row:#?}");
    assert_eq!((row.rounds, row.rounds_fallen_back), (0, count), "{row:#?}");
    says(row.reason.as_deref().unwrap_or_default(), &["is not malloc'd by a glibc"])
}

fn shared_memory_is_left_out() -> TestResult {
    let make = || hugewise(&["compare", "--json", "--rounds", "1", "-b", "shm", "--", "sleep", "0.05"]);
    let comparison = run_command(&make)?.ended_with(1)?.comparison()?;
    says(reason_left_out(&comparison, "shm")?, &["only a JVM", "try hugetlb"])
}
