//! Compares plans with the pages that a JVM uses when it is started with a pool of the planned size. Each collector of
//! each JVM is started with one heap size, which takes turns; with the other sizes only in a full run. On short pools,
//! the collectors take turns with the JVMs.

use std::{
    env,
    error::Error,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use hugewise_changes::{
    journal::{Journal, JournalError, STATE_DIR},
    pool_growth,
};
use hugewise_linux::{
    hugepages::pools::{self, Pool},
    interrupt::Interrupt,
    root::Root,
    units::{Bytes, PageSize, Pages},
};
use hugewise_plan::plan::{Plan, PoolAvailability, StartOutcome};
use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    needs::{
        Need::{Java, Pool as PoolNeeded, Root as RootNeeded},
        jdks, starts_with,
    },
    represents,
    settings::MAX_WAIT_TIME,
    skip,
    start::{hugewise, run},
    trial,
};

/// Environment variable with more JVMs to test: paths of java executables or Java homes, separated by colons.
const MORE: &str = "HUGEWISE_JAVAS";

/// Memory that must stay available when the pool grows.
const FLOOR: Bytes = Bytes(1 << 30);
pub const COLLECTORS: [&str; 5] = ["UseSerialGC", "UseParallelGC", "UseG1GC", "UseZGC", "UseShenandoahGC"];
const SIZES: [&[&str]; 7] = [
    &["-Xmx256m"],
    &["-Xmx1g"],
    &["-Xmx1500m"],
    &["-Xmx2g"],
    &["-Xmx3g"],
    &["-Xms100m", "-Xmx1001m", "-XX:ReservedCodeCacheSize=100m"],
    &["-Xms512m", "-Xmx700m", "-XX:-SegmentedCodeCache", "-XX:ReservedCodeCacheSize=15m"],
];
/// Required for ZGC in JDK 11.
pub const UNLOCK: &str = "-XX:+UnlockExperimentalVMOptions";

/// Fills the whole heap if it has an argument, prints `started`, and runs until standard input is closed.
const SOURCE: &str = "
public class Stay {
    public static void main(String[] arguments) throws Exception {
        java.util.ArrayList<byte[]> kept = new java.util.ArrayList<>();
        try {
            while (arguments.length > 0) {
                kept.add(new byte[1 << 20]);
            }
        } catch (OutOfMemoryError full) {
            // Full, as requested; printing needs free memory, and ZGC frees whole pages of the heap.
            kept.clear();
        }
        System.out.println(\"started\");
        System.in.read();
    }
}
";

pub fn trials() -> Vec<Trial> {
    let needs = [RootNeeded, PoolNeeded, Java];
    let class = Arc::new(compiled());
    let mut trials = Vec::new();
    let mut sizes = SIZES;
    let javas = javas();
    for (j, java) in javas.iter().enumerate() {
        let (java_too, class_too) = (java.clone(), Arc::clone(&class));
        let name = format!("plan: {} two instances use the pages planned for two", java.display());
        trials.push(trial(&name, &needs, move || {
            let class = class_too.as_ref().as_ref().map_err(|error| error.clone())?;
            two_instances(&java_too, class.path())
        }));
        let java_too = java.clone();
        let name = format!("plan: {} for a captured machine", java.display());
        let captured = trial(&name, &[PoolNeeded, Java], move || captured_machine(&java_too));
        trials.push(captured.representing(represents(j, javas.len(), 0)));
        if knows(java, "UseZGC") {
            let (java_too, class_too) = (java.clone(), Arc::clone(&class));
            let name = format!("plan: {} UseZGC grows to the planned size", java.display());
            let grows = trial(&name, &needs, move || {
                let class = class_too.as_ref().as_ref().map_err(|error| error.clone())?;
                grows_to_what_was_planned(&java_too, class.path())
            });
            trials.push(grows.representing(represents(j, javas.len(), 1)));
        }
        let known = COLLECTORS.into_iter().enumerate().filter(|(_, collector)| knows(java, collector));
        for (c, collector) in known {
            let name = format!("plan: {} {collector} uses the planned pages", java.display());
            let (java, class) = (java.clone(), Arc::clone(&class));
            let short = format!("plan: {} {collector} on a short pool, as predicted", java.display());
            let (java_too, class_too) = (java.clone(), Arc::clone(&class));
            let short = trial(&short, &needs, move || {
                let class = class_too.as_ref().as_ref().map_err(|error| error.clone())?;
                behaves_as_predicted(&java_too, class.path(), collector)
            });
            trials.push(short.representing(represents(j, javas.len(), c)));
            sizes.rotate_left(1);
            for (name, heaps) in
                [(name.clone(), &sizes[..1]), (format!("{name} with other heaps"), &sizes[1..])]
            {
                let (java, class, heaps) = (java.clone(), Arc::clone(&class), heaps.to_vec());
                let is_first = heaps.len() == 1;
                let test = move || {
                    let class = class.as_ref().as_ref().map_err(|error| error.clone())?;
                    for heap in heaps {
                        takes_what_was_planned(&java, class.path(), collector, heap)
                            .map_err(|error| format!("{collector} {heap:?}: {error}"))?;
                    }
                    Ok(())
                };
                trials.push(trial(&name, &needs, test).representing(is_first));
            }
        }
    }
    trials
}

/// All JDKs of the machine, and the JVMs of [`MORE`].
pub fn javas() -> Vec<PathBuf> {
    let found = jdks().into_iter().map(|jdk| jdk.java);
    let more = env::var_os(MORE).unwrap_or_default();
    let more = env::split_paths(&more).map(|path| if path.is_dir() { path.join("bin/java") } else { path });
    found.chain(more.filter(|path| !path.as_os_str().is_empty())).collect()
}

pub fn knows(java: &Path, collector: &str) -> bool {
    starts_with(java, &[UNLOCK, &format!("-XX:+{collector}")])
}

/// The program in a folder.
pub fn compiled() -> Result<TempDir, String> {
    crate::compiling::compiled("Stay", SOURCE).map_err(|error| error.to_string())
}

/// A command line of the program in two parts, between which large page options are inserted.
struct Line<'a> {
    java: &'a str,
    rest: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn new(java: &'a Path, class: &'a Path, options: &[&'a str]) -> Result<Line<'a>, Box<dyn Error>> {
        let class_path = class.to_str().ok_or("a path that is not UTF-8")?;
        let rest = options.iter().copied().chain(["-cp", class_path, "Stay"]).collect();
        Ok(Line { java: java.to_str().ok_or("a path that is not UTF-8")?, rest })
    }

    fn plan(&self, more: &[&str]) -> Result<Plan, Box<dyn Error>> {
        self.plan_for(1, more)
    }

    fn plan_for(&self, instances: u32, more: &[&str]) -> Result<Plan, Box<dyn Error>> {
        let instances = instances.to_string();
        let planned = hugewise(&["plan", "--backing", "hugetlb", "--json", "--instances", &instances])
            .args(["--", self.java])
            .args(more)
            .args(&self.rest)
            .output()?;
        serde_json::from_slice(&planned.stdout)
            .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&planned.stderr)).into())
    }

    fn with(&self, options: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(self.java);
        command.args(options).args(&self.rest);
        command
    }
}

/// The pools of the captured machine count, and not those of this one.
fn captured_machine(java: &Path) -> TestResult {
    let folder = tempfile::tempdir()?;
    let captured = folder.path().join("machine");
    let path = captured.to_str().ok_or("a path that is not UTF-8")?;
    run(&["check", "--capture", path])?;
    let pool = captured.join("sys/kernel/mm/hugepages/hugepages-2048kB");
    for file in ["nr_hugepages", "free_hugepages"] {
        fs::write(pool.join(file), "4000\n")?;
    }
    let java = java.to_str().ok_or("a path that is not UTF-8")?;
    let planned = |options: &[&str]| -> Result<Plan, Box<dyn Error>> {
        let line = [java, "-Xmx1g", "-XX:+UseLargePages", "-XX:MaxDirectMemorySize=2g", "Main"];
        let line = [&["plan", "--json", "--root", path], options, &["--"], &line].concat();
        Ok(serde_json::from_str(&run(&line)?.ended_with(0)?.stdout)?)
    };
    let plan = planned(&[])?;
    let pool = plan.pools.first().ok_or("a pool was expected")?;
    assert_eq!((pool.pages_available, pool.pages_to_add), (Pages(4000), Pages(0)), "{plan:#?}");
    assert_eq!(plan.verdict.outcome, StartOutcome::GetsHugePages, "{:#?}", plan.verdict);
    let direct = plan
        .notes
        .iter()
        .any(|note| note.contains("direct buffers, at most 2GiB, take no pages of the pool"));
    assert!(direct, "{:#?}", plan.notes);
    // Free blocks of 1 GiB are in no list: all page frames are scanned.
    let giant = captured.join("sys/kernel/mm/hugepages/hugepages-1048576kB");
    fs::create_dir_all(&giant)?;
    for file in ["nr_hugepages", "free_hugepages", "surplus_hugepages", "resv_hugepages"] {
        fs::write(giant.join(file), "0\n")?;
    }
    const BUDDY: u64 = 1 << 10;
    fs::write(captured.join("proc/kpageflags"), BUDDY.to_ne_bytes().repeat(2 << 18))?;
    let plan = planned(&["--backing", "hugetlb:1GiB"])?;
    let pool = plan.pools.iter().find(|pool| pool.page_size_bytes.bytes() == Bytes(1 << 30));
    let pool = pool.ok_or("a pool of 1 GiB was expected")?;
    assert_eq!((pool.obtainable, pool.pages_to_add), (PoolAvailability::Yes, Pages(1)), "{plan:#?}");
    Ok(())
}

fn takes_what_was_planned(java: &Path, class: &Path, collector: &str, heap: &[&str]) -> TestResult {
    let collector = format!("-XX:+{collector}");
    let options: Vec<&str> = [UNLOCK, collector.as_str()].into_iter().chain(heap.iter().copied()).collect();
    let line = Line::new(java, class, &options)?;
    let plan = line.plan(&[])?;
    let [pool] = &plan.pools[..] else { return Err(format!("one pool was expected: {plan:#?}").into()) };
    let size = pool.page_size_bytes;
    let consumed = with_pool(size, pool.pages_needed, || consumed(&mut line.with(&plan.options), size))?;
    // Only ZGC takes pages after the start: a plan for more is too large.
    let grows = collector.contains("ZGC");
    if consumed != pool.pages_at_start || (!grows && pool.pages_needed != pool.pages_at_start) {
        return Err(format!(
            "{consumed} pages were taken, {} of {} were planned: {plan:#?}",
            pool.pages_at_start, pool.pages_needed
        )
        .into());
    }
    Ok(())
}

/// Enough pages for the code cache and the tables, but not for the heap.
const SHORT_POOL_PAGES: Pages = Pages(400);

fn behaves_as_predicted(java: &Path, class: &Path, collector: &str) -> TestResult {
    let collector = format!("-XX:+{collector}");
    let line = Line::new(java, class, &[UNLOCK, &collector, "-Xms1g", "-Xmx1g"])?;
    let size = line.plan(&[])?.pools.first().ok_or("a pool was expected")?.page_size_bytes;
    let (plan, took) = with_pool(size, SHORT_POOL_PAGES, || {
        let given = ["-XX:+UseLargePages"];
        Ok((line.plan(&given)?, consumed(&mut line.with(&given), size)))
    })?;
    let on_huge = plan.verdict.regions.iter().filter(|region| region.page_size_bytes == size);
    let predicted: Pages = on_huge.map(|region| region.huge_bytes.pages_needed(size)).sum();
    match (plan.verdict.outcome, took) {
        (StartOutcome::FallsBack, Ok(took)) if took == predicted => Ok(()),
        (StartOutcome::Exits, Err(_)) => Ok(()),
        (_, took) => {
            Err(format!("{predicted} pages were predicted, {took:?} used: {:#?}", plan.verdict).into())
        }
    }
}

/// Runs `act` with a pool of `pages`. Skips the test if there is too little memory or it is too fragmented for
/// the pool.
pub fn with_pool<T>(
    size: PageSize,
    pages: Pages,
    act: impl FnOnce() -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    with_pools(&[(size, pages)], act)
}

/// Like [`with_pool`], with a pool of each of these sizes.
pub fn with_pools<T>(
    pools: &[(PageSize, Pages)],
    act: impl FnOnce() -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let mut journal = open_journal()?;
    let interrupt = Interrupt::install()?;
    for &(size, pages) in pools {
        let mut grow = || pool_growth::grow(&Root::live(), &mut journal, size, pages, FLOOR, &interrupt);
        if grow().is_err() {
            // The page cache fragments memory.
            fs::write("/proc/sys/vm/drop_caches", "1")?;
            if let Err(shortage) = grow() {
                return skip(format!("no pool of {pages} pages of {size}: {shortage}"));
            }
        }
    }
    let done = act();
    let restored = journal.close();
    if restored.failed.is_empty() {
        return done;
    }
    Err(format!("the pool was not restored: {:?}", restored.failed).into())
}

fn open_journal() -> Result<Journal, Box<dyn Error>> {
    let begin = Instant::now();
    loop {
        match Journal::open(&Root::live(), Path::new(STATE_DIR), "a test of plan") {
            Err(JournalError::Busy(_)) if begin.elapsed() < MAX_WAIT_TIME => {
                thread::sleep(Duration::from_millis(200))
            }
            opened => return Ok(opened?),
        }
    }
}

/// The heap of ZGC grows to the planned size, in a pool with exactly the planned pages.
fn grows_to_what_was_planned(java: &Path, class: &Path) -> TestResult {
    let line = Line::new(java, class, &[UNLOCK, "-XX:+UseZGC", "-Xms100m", "-Xmx600m"])?;
    let plan = line.plan(&[])?;
    let pool = plan.pools.first().ok_or("a pool was expected")?;
    let size = pool.page_size_bytes;
    let taken = with_pool(size, pool.pages_needed, || {
        let mut command = line.with(&plan.options);
        consumed(command.arg("fill"), size)
    })?;
    // In JDK 11 the last pages are too few for an object, and are never requested.
    let left = pool.pages_needed.saturating_sub(taken);
    if taken <= pool.pages_needed && left < Pages(8) && pool.pages_at_start < taken {
        return Ok(());
    }
    Err(format!("{taken} pages were taken: {plan:#?}").into())
}

/// Two JVMs at the same time use the pages planned for two.
fn two_instances(java: &Path, class: &Path) -> TestResult {
    let line = Line::new(java, class, &["-XX:+UseG1GC", "-Xmx200m"])?;
    let plan = line.plan_for(2, &[])?;
    let pool = plan.pools.first().ok_or("a pool was expected")?;
    let size = pool.page_size_bytes;
    let taken = with_pool(size, pool.pages_needed, || {
        let mut first = IdleJvm::start(&mut line.with(&plan.options))?;
        let both = consumed(&mut line.with(&plan.options), size);
        first.end()?;
        both
    })?;
    if taken == pool.pages_needed {
        Ok(())
    } else {
        Err(format!("{taken} pages were taken: {plan:#?}").into())
    }
}

/// A JVM that runs until it is dropped or ended.
struct IdleJvm(Child);

impl IdleJvm {
    fn start(command: &mut Command) -> Result<IdleJvm, Box<dyn Error>> {
        let jvm = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let mut stays = IdleJvm(jvm);
        let output = stays.0.stdout.take().ok_or("no output")?;
        let mut said = Vec::new();
        // Messages of the JVM may precede it.
        for line in BufReader::new(output).lines() {
            said.push(line?);
            if said.last().is_some_and(|line| line == "started") {
                return Ok(stays);
            }
        }
        Err(format!("the JVM did not start: it said {said:?}; {:?}", stays.end()).into())
    }

    fn end(&mut self) -> TestResult {
        drop(self.0.stdin.take());
        let ended = self.0.wait()?;
        if ended.success() { Ok(()) } else { Err(ended.to_string().into()) }
    }
}

/// Pool pages that the JVM uses after its start: Total − Free + Rsvd.
fn consumed(command: &mut Command, size: PageSize) -> Result<Pages, Box<dyn Error>> {
    let mut jvm = IdleJvm::start(command)?;
    let pools = pools::read(&Root::live());
    jvm.end()?;
    let pools = pools?;
    let pool: &Pool =
        pools.iter().find(|pool| pool.page_size == size && pool.node.is_none()).ok_or("no such pool")?;
    Ok(pool.used() + pool.reserved.unwrap_or_default())
}
