//! The figures that `hugewise run` reports are those that the program reads in its own smaps.

use std::{collections::BTreeMap, error::Error, fs};

use crate::Trial;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    TestResult,
    compiling::compile,
    needs::Need::{Compiler, Full, Thp},
    start::{Running, hugewise, left_running, says, wait_until},
    trial,
};

/// Takes steps, and prints the sums of its smaps after the one at which most memory was resident: MIB:SECONDS fills
/// memory and waits, free:SECONDS frees the memory of the step before and waits, exec starts the program anew with
/// the other steps.
const GROW: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char fullest[16384];
static long most;

static void sample(void) {
    static char text[sizeof fullest];
    FILE *sums = fopen("/proc/self/smaps_rollup", "r");
    text[fread(text, 1, sizeof text - 1, sums)] = 0;
    fclose(sums);
    long anonymous = atol(strstr(text, "\nAnonymous:") + 11);
    if (anonymous >= most) {
        most = anonymous;
        strcpy(fullest, text);
    }
}

int main(int count, char **steps) {
    char *memory = 0;
    for (int at = 1; at < count; at++) {
        if (!strcmp(steps[at], "exec")) {
            steps[at] = steps[0];
            execv("/proc/self/exe", steps + at);
        }
        size_t bytes = (size_t)atoi(steps[at]) << 20;
        if (bytes) memset(memory = malloc(bytes), 1, bytes); else free(memory);
        usleep(atof(strchr(steps[at], ':') + 1) * 1e6);
        sample();
    }
    fputs(fullest, stdout);
    return 0;
}
"#;

const REPORT: &str = "report.json";

type Named = (&'static str, fn() -> TestResult);

pub fn trials() -> Vec<Trial> {
    let tests: [Named; 3] = [
        ("run: reports are of the fullest sample after the last exec", of_the_fullest_sample),
        ("run: --exact reports a job of 0.3 s as it was at its exit", exact),
        ("run: a job without a sample is reported as such", without_sample),
    ];
    let mut trials: Vec<Trial> =
        tests.into_iter().map(|(name, test)| trial(name, &[Thp, Compiler], test)).collect();
    let growing = || Job::start(&[], &[], &["100:10", "150:10", "200:10"])?.agrees();
    let name = "run: the report of a job of 30 s that grows twice is of its fullest sample";
    trials.push(trial(name, &[Thp, Compiler, Full], growing));
    trials
}

/// A program of these steps under `run`.
struct Job {
    folder: TempDir,
    running: Running,
}

impl Job {
    fn start(options: &[&str], before: &[&str], steps: &[&str]) -> Result<Job, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        let grow = compile(folder.path(), "grow", GROW)?;
        let report = folder.path().join(REPORT).display().to_string();
        let line = [
            &["run", "--backing", "thp", "--malloc", "glibc", "--report", &report][..],
            options,
            &["--"],
            before,
            &[&grow],
            steps,
        ];
        Ok(Job { folder, running: Running::start(&mut hugewise(&line.concat()))? })
    }

    /// The last report, and the sums that the program printed, in bytes. Waits for the observers of all jobs, which
    /// write their reports after the end.
    fn reported(self) -> Result<(Value, BTreeMap<String, u64>), Box<dyn Error>> {
        let ran = self.running.wait()?.ended_with(0)?;
        let sums = ran.stdout.lines().filter_map(|line| {
            let (name, kib) = line.strip_suffix(" kB")?.split_once(':')?;
            Some((name.to_owned(), kib.trim().parse::<u64>().ok()? << 10))
        });
        let left = left_running();
        assert!(left.is_empty(), "{left:?}");
        Ok((serde_json::from_slice(&fs::read(self.folder.path().join(REPORT))?)?, sums.collect()))
    }

    fn agrees(self) -> TestResult {
        let (report, sums) = self.reported()?;
        agrees(&report, &sums)
    }
}

/// Resident bytes, and bytes on huge pages, of the only region.
fn figures(report: &Value) -> Result<[u64; 2], Box<dyn Error>> {
    let [region] = &report["regions"].as_array().ok_or("no regions")?[..] else {
        return Err(format!("one region was expected: {report:#}").into());
    };
    let huge = &region["bytes_by_page_size"]["2097152"];
    Ok([region["resident_bytes"].as_u64().ok_or("no size")?, huge.as_u64().unwrap_or(0)])
}

/// The figures are within 2 % of those of smaps, and 1 MiB for what is not malloc'd.
fn agrees(report: &Value, sums: &BTreeMap<String, u64>) -> TestResult {
    let expected = [sums["Anonymous"], sums["AnonHugePages"]];
    let seen = figures(report)?;
    for (seen, expected) in seen.into_iter().zip(expected) {
        if seen.abs_diff(expected) > expected / 50 + (1 << 20) {
            return Err(format!("{seen} of {expected} bytes: {report:#}, {sums:#?}").into());
        }
    }
    Ok(())
}

/// Of jobs that run at the same time.
fn of_the_fullest_sample() -> TestResult {
    // The shell has read more memory before the exec than the program has after it.
    let script = "x=$(head -c 60000000 /dev/zero | tr '\\0' x); sleep 1; exec \"$0\" \"$@\"";
    let jobs: [(&str, &[&str], &[&str]); 5] = [
        ("of 3 s", &[], &["100:1", "100:2"]),
        ("that grows after a lull", &[], &["40:4", "240:2"]),
        ("that frees its memory", &[], &["300:1.5", "free:4"]),
        ("after the last exec", &["sh", "-c", script], &["20:2"]),
        ("that executes itself", &[], &["200:3", "exec", "40:1.5"]),
    ];
    let started: Vec<(&str, Job)> = jobs
        .into_iter()
        .map(|(name, before, steps)| Ok((name, Job::start(&[], before, steps)?)))
        .collect::<Result<_, Box<dyn Error>>>()?;
    for (name, job) in started {
        job.agrees().map_err(|error| format!("a job {name}: {error}"))?;
    }
    Ok(())
}

fn exact() -> TestResult {
    let (report, sums) = Job::start(&["--exact"], &[], &["80:0.3"])?.reported()?;
    assert_eq!(report["outcome"], "ended", "{report:#}");
    assert_eq!(report["seconds"], report["lasted_seconds"], "{report:#}");
    agrees(&report, &sums)?;
    assert_eq!(figures(&report)?[1], sums["AnonHugePages"], "{report:#}");
    Ok(())
}

fn without_sample() -> TestResult {
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    let mut command = hugewise(&["run", "--backing", "thp", "--", "true"]);
    assert!(command.stderr(fs::File::create(&log)?).status()?.success());
    wait_until("the report is printed", || Ok(fs::read_to_string(&log)?.contains("true (pid")))?;
    let said = fs::read_to_string(&log)?;
    // A sample of so short a program is rare, and then it is reported.
    match said.contains("fullest") {
        true => Ok(()),
        false => says(&said, &["before its memory was read", "--exact"]),
    }
}
