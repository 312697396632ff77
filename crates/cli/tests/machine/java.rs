//! Java launch lines on every JDK of the machine. Backings, ZGC and Shenandoah take turns on the JDKs; all
//! collectors run on every JDK only in a full run.

use std::{cell::Cell, error::Error, fs, path::Path};

use hugewise_jvm::jdks::Jdk;
use hugewise_measure::comparison::Comparison;

use crate::{
    TestResult, Trial,
    compiling::compiled,
    needs::{
        Need::{Java, Pool, Root, Thp},
        jdks, starts_with,
    },
    represents, skip,
    start::{INCONCLUSIVE, covered, hugewise, reason_left_out, rounds, run_command, says},
    trial, with_attempts,
};

const SOURCE: &str = "
public class Allocate {
    public static void main(String[] arguments) throws Exception {
        byte[][] kept = new byte[48][];
        long sum = 0;
        for (int i = 0; i < kept.length; i++) {
            kept[i] = new byte[1 << 20];
            java.util.Arrays.fill(kept[i], (byte) 1);
            sum += kept[i][i];
        }
        Thread.sleep(500);
        System.out.println(\"kept: \" + sum);
    }
}
";
/// Direct buffers that malloc would map one by one.
const DIRECT: &str = "
public class Direct {
    public static void main(String[] arguments) {
        java.nio.ByteBuffer[] kept = new java.nio.ByteBuffer[200];
        for (int i = 0; i < kept.length; i++) {
            kept[i] = java.nio.ByteBuffer.allocateDirect(1 << 20);
            for (int at = 0; at < 1 << 20; at += 4096) {
                kept[i].put(at, (byte) 1);
            }
        }
        System.out.println(kept[7].get(4096));
    }
}
";
/// Collectors, each with a backing and the least coverage on it.
const COLLECTORS: [(&str, &str, f64); 4] = [
    ("UseSerialGC", "thp", 0.8),
    ("UseParallelGC", "hugetlb", 0.95),
    ("UseZGC", "thp", 0.8),
    ("UseShenandoahGC", "hugetlb", 0.95),
];

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Pool, Thp, Java];
    let mut trials = Vec::new();
    let jdks = jdks();
    for (j, jdk) in jdks.iter().enumerate() {
        let name = format!("JDK {}", jdk.version);
        let of = |test: fn(&Jdk) -> TestResult| {
            let jdk = jdk.clone();
            move || with_retries(|| test(&jdk))
        };
        let on_each = trial(&format!("{name}: the heap gets its pages"), &needs, of(the_heap));
        trials.push(on_each.representing(j == 0));
        let wrapped = trial(&format!("{name}: behind a wrapper"), &needs, of(behind_a_wrapper));
        trials.push(wrapped.representing(j == 0));
        trials.push(trial(&format!("{name}: SysV shared memory"), &needs, of(shared_memory)));
        for (b, backing) in ["thp", "hugetlb"].into_iter().enumerate() {
            let jdk = jdk.clone();
            let name = format!("{name}: memory outside the heap on {backing}");
            let outside = trial(&name, &needs, move || with_retries(|| outside_the_heap(&jdk, backing)));
            trials.push(outside.representing(represents(j, jdks.len(), b)));
        }
        for (c, (collector, backing, least)) in COLLECTORS.into_iter().enumerate() {
            if knows(jdk, collector) {
                let jdk = jdk.clone();
                let name = format!("{name}: {collector} on {backing}");
                let collected =
                    trial(&name, &needs, move || with_retries(|| collects(&jdk, collector, backing, least)));
                // script.rs has Serial on THP, and evidence.rs Parallel on pages of a pool.
                trials.push(collected.representing(c >= 2 && represents(j, jdks.len(), c)));
            }
        }
    }
    if trials.is_empty() {
        trials.push(trial("Java heaps get their pages", &needs, || skip("no JDK")));
    }
    trials
}

pub fn knows(jdk: &Jdk, collector: &str) -> bool {
    starts_with(&jdk.java, &[&format!("-XX:+{collector}"), "-Xmx64m"])
}

fn compare(
    jdk: &Jdk,
    options: &[&str],
    flags: &[&str],
    variables: &[(&str, &str)],
    status: i32,
) -> Result<Comparison, Box<dyn Error>> {
    compare_behind(&[], jdk, options, flags, variables, status)
}

/// [`compare`] with a wrapper before the `java`.
fn compare_behind(
    wrapper: &[&str],
    jdk: &Jdk,
    options: &[&str],
    flags: &[&str],
    variables: &[(&str, &str)],
    status: i32,
) -> Result<Comparison, Box<dyn Error>> {
    let folder = compiled("Allocate", SOURCE)?;
    let make = || {
        let mut command = hugewise(&["compare", "--json", "--metric", "kept=kept: ([0-9]+)"]);
        command.args(options).arg("--").args(wrapper).arg(&jdk.java);
        command.args(["-Xms256m", "-Xmx256m", "-XX:+AlwaysPreTouch"]).args(flags);
        command.arg("-cp").arg(folder.path()).arg("Allocate").envs(variables.iter().copied());
        command
    };
    run_command(&make)?.ended_with(status)?.comparison()
}

/// Attempts again if the kernel failed to allocate huge pages: a run, also a warm-up, then counts as fallen
/// back.
fn with_retries(test: impl Fn() -> TestResult) -> TestResult {
    let failed = || {
        let counters = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let fallbacks =
            counters.lines().filter(|line| line.starts_with("thp_") && line.contains("_fallback "));
        fallbacks.filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok()).sum::<u64>()
    };
    let before = Cell::new(0);
    with_attempts(
        |error| match error.contains("not contiguous") || error.contains("of memory left for the rest") {
            true => Some("the pool could not be grown"),
            false => (failed() > before.get()).then_some("the kernel failed to allocate huge pages"),
        },
        || {
            before.set(failed());
            test()
        },
    )
}

fn outside_the_heap(jdk: &Jdk, backing: &str) -> TestResult {
    let folder = compiled("Direct", DIRECT)?;
    let make = || {
        let mut command = hugewise(&["compare", "--json", "--rounds", "1", "--off-heap", backing, "--"]);
        command.arg(&jdk.java).args(["-Xms64m", "-Xmx64m", "-XX:MaxDirectMemorySize=256m", "-cp"]);
        command.arg(folder.path()).arg("Direct");
        command
    };
    let comparison = run_command(&make)?.ended_with(INCONCLUSIVE)?.comparison()?;
    for round in rounds(&comparison, "base")? {
        assert!(round.off_heap_coverage.is_some_and(|share| share <= 0.05), "{round:#?}");
    }
    for round in rounds(&comparison, &format!("base + off-heap {backing}"))? {
        assert!(round.coverage.is_some_and(|share| share <= 0.05), "{round:#?}");
        assert!(round.off_heap_coverage.is_some_and(|share| share >= 0.8), "{round:#?}");
    }
    Ok(())
}

fn the_heap(jdk: &Jdk) -> TestResult {
    let comparison = compare(
        jdk,
        &["--rounds", "1"],
        &["-XX:+UseG1GC", "-XX:+UseLargePages"],
        &[("JAVA_TOOL_OPTIONS", "-XX:-UseTransparentHugePages -Dkept=1")],
        INCONCLUSIVE,
    )?;
    covered(&comparison, "thp", 0.8)?;
    covered(&comparison, "hugetlb", 0.95)?;
    assert_eq!(comparison.cases[0].figures[0].name, "kept");
    for round in rounds(&comparison, "base")? {
        assert!(round.coverage.is_some_and(|share| share <= 0.05), "{round:#?}");
        assert_eq!(round.figures.get("kept"), Some(&48.0));
        for figure in ["gc_pauses", "heap_ready"] {
            assert!(round.figures.contains_key(figure), "{figure}: {round:#?}");
        }
    }
    says(
        &comparison.notes.join("\n"),
        &["removed -XX:+UseLargePages", "-XX:-UseTransparentHugePages of JAVA_TOOL_OPTIONS"],
    )
}

/// A wrapper before `java` is kept, and large page flags that it sets are ignored.
fn behind_a_wrapper(jdk: &Jdk) -> TestResult {
    let wrapper =
        ["env", "_JAVA_OPTIONS=-XX:-UseLargePages -Dkept=1", "timeout", "600", "taskset", "-c", "0"];
    let options = ["--rounds", "1", "-b", "hugetlb"];
    let comparison = compare_behind(&wrapper, jdk, &options, &["-XX:+UseSerialGC"], &[], INCONCLUSIVE)?;
    covered(&comparison, "hugetlb", 0.95)?;
    says(&comparison.notes.join("\n"), &["removed -XX:-UseLargePages of _JAVA_OPTIONS"])
}

fn collects(jdk: &Jdk, collector: &str, backing: &str, least: f64) -> TestResult {
    let flag = format!("-XX:+{collector}");
    let comparison = compare(jdk, &["--rounds", "1", "-b", backing], &[&flag], &[], INCONCLUSIVE)?;
    covered(&comparison, backing, least)?;
    let shmem = Path::new("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    if collector == "UseZGC" && fs::read_to_string(shmem)?.contains("[never]") {
        says(&comparison.changes.join("\n"), &["shmem_enabled: never"])?;
    }
    Ok(())
}

fn shared_memory(jdk: &Jdk) -> TestResult {
    let known = jdk.major < 22;
    let status = if known { INCONCLUSIVE } else { 1 };
    let comparison = compare(jdk, &["--rounds", "1", "-b", "shm"], &["-XX:+UseSerialGC"], &[], status)?;
    if known {
        return covered(&comparison, "shm", 0.95);
    }
    says(reason_left_out(&comparison, "shm")?, &[&jdk.version, "UseSHM", "JDK-8261894"])
}
