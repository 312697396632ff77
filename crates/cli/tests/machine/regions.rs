//! Compares the names of a JVM's regions with the JVM's own Native Memory Tracking. Each collector of each JDK runs on
//! one backing, which takes turns; on the others only in a full run.

use std::{
    error::Error,
    fs::File,
    io::{BufRead, BufReader, Read},
    ops::Range,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use hugewise_changes::journal::{Journal, JournalError, STATE_DIR};
use hugewise_jvm::{
    attach,
    jdks::Jdk,
    regions::{self, Naming, RegionKind, Source},
};
use hugewise_linux::{
    c_library,
    hugepages::pools,
    proc::smaps::{self, Vma},
    root::Root,
    settings::Setting,
    sys::{aside::Deadline, pagemap},
    units::{Bytes, PageSize},
};

use crate::{
    TestResult, Trial,
    compiling::compiled,
    java::knows,
    needs::{
        Need::{Java, Namespaces, Pool, Root as Superuser, Thp},
        jdks,
    },
    represents,
    settings::MAX_WAIT_TIME,
    skip,
    start::{MARKER, says, wait_until},
    tracking, trial,
};

const SOURCE: &str = "
public class Regions {
    public static void main(String[] arguments) throws Exception {
        byte[][] kept = new byte[32][];
        for (int i = 0; i < kept.length; i++) {
            kept[i] = new byte[1 << 20];
            java.util.Arrays.fill(kept[i], (byte) 1);
        }
        java.nio.ByteBuffer direct = java.nio.ByteBuffer.allocateDirect(8 << 20);
        for (int i = 0; i < direct.capacity(); i += 4096) direct.put(i, (byte) 1);
        System.gc();
        System.out.println(\"ready\");
        Thread.sleep(600000);
        System.out.println(kept.length + direct.get(0));
    }
}
";
/// Direct buffers of 256 MiB, in pieces.
const BUFFERS: &str = "
public class Regions {
    public static void main(String[] arguments) throws Exception {
        java.nio.ByteBuffer[] kept = new java.nio.ByteBuffer[4096];
        for (int i = 0; i < kept.length; i++) {
            kept[i] = java.nio.ByteBuffer.allocateDirect(64 << 10);
            for (int j = 0; j < kept[i].capacity(); j += 4096) kept[i].put(j, (byte) 1);
        }
        System.out.println(\"ready\");
        Thread.sleep(600000);
        System.out.println(kept.length);
    }
}
";
const COLLECTORS: [&str; 5] = ["UseSerialGC", "UseParallelGC", "UseG1GC", "UseZGC", "UseShenandoahGC"];
/// Backings, with the flags that request them.
const BACKINGS: [(&str, &[&str]); 3] = [
    ("base", &["-XX:-UseLargePages", "-XX:-UseTransparentHugePages"]),
    ("thp", &["-XX:+UseTransparentHugePages", "-XX:+AlwaysPreTouch"]),
    ("hugetlb", &["-XX:+UseLargePages", "-XX:+AlwaysPreTouch"]),
];
/// Pages of the pool, enough for a heap of 256 MiB with any collector.
const POOL: u64 = 320;
pub fn trials() -> Vec<Trial> {
    let needs = [Superuser, Pool, Thp, Java];
    let mut trials = Vec::new();
    for (j, jdk) in jdks().into_iter().filter(|jdk| jdk.major >= 11).enumerate() {
        let known = COLLECTORS.into_iter().enumerate().filter(|(_, collector)| knows(&jdk, collector));
        for (c, collector) in known {
            for (b, (backing, flags)) in BACKINGS.into_iter().enumerate() {
                let (jdk, name) =
                    (jdk.clone(), format!("JDK {}: regions of {collector} on {backing}", jdk.version));
                let named = trial(&name, &needs, move || case(&jdk, collector, backing, flags));
                trials.push(named.representing(represents(b, BACKINGS.len(), j + c)));
            }
        }
        let of = |test: fn(&Jdk) -> TestResult| {
            let jdk = jdk.clone();
            move || test(&jdk)
        };
        let name = |what: &str| format!("JDK {}: {what}", jdk.version);
        let other = name("memory of a preloaded malloc is not the collector's");
        trials.push(trial(&other, &[Superuser, Java], of(with_another_malloc)));
        let refused = name("regions with attaching disabled");
        trials.push(trial(&refused, &[Java], of(attaching_is_refused)));
        let silent = name("regions with -Xrs, without SIGQUIT");
        trials.push(trial(&silent, &[Java], of(attaching_sends_no_signal)));
        let apart = name("regions in other namespaces");
        trials.push(trial(&apart, &[Superuser, Namespaces, Java], of(in_its_own_name_spaces)));
    }
    if trials.is_empty() {
        trials.push(trial("the regions of a JVM have their names", &needs, || Ok(())));
    }
    trials.push(trial("regions of a process that is not a JVM", &[], no_jvm));
    trials
}

/// A running program of the test, ended when dropped.
pub struct Running {
    child: Child,
    /// Its output after the line that reports that it is ready.
    stdout: Option<BufReader<ChildStdout>>,
}

impl Running {
    fn start(jdk: &Jdk, options: &[&str], folder: &Path) -> Result<Running, Box<dyn Error>> {
        Running::start_by(&mut Command::new(&jdk.java), options, folder)
    }

    /// Starts it by a command that takes the JVM's options.
    fn start_by(command: &mut Command, options: &[&str], folder: &Path) -> Result<Running, Box<dyn Error>> {
        let child = command
            .args(["-Xmx256m", "-Xms256m"])
            .args(options)
            .arg("-cp")
            .arg(folder)
            .arg("Regions")
            .env(MARKER, std::process::id().to_string())
            .env_remove("JAVA_TOOL_OPTIONS")
            .env_remove("JDK_JAVA_OPTIONS")
            .env_remove("_JAVA_OPTIONS")
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut running = Running { child, stdout: None };
        let mut stdout = BufReader::new(running.child.stdout.take().ok_or("no stdout")?);
        // Warnings may precede it.
        let ready = stdout.by_ref().lines().map_while(Result::ok).any(|line| line == "ready");
        running.stdout = Some(stdout);
        if ready { Ok(running) } else { Err(format!("it ended before it was ready: {options:?}").into()) }
    }

    /// Checks that it still runs and has printed nothing: a thread dump would go to stdout.
    fn end_undisturbed(mut self) -> TestResult {
        if let Some(status) = self.child.try_wait()? {
            return Err(format!("it was ended: {status}").into());
        }
        self.child.kill()?;
        let mut printed = String::new();
        self.stdout.take().ok_or("no stdout")?.read_to_string(&mut printed)?;
        if printed.is_empty() { Ok(()) } else { Err(format!("the JVM printed: {printed}").into()) }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn vmas(&self) -> Result<Vec<Vma>, Box<dyn Error>> {
        Ok(smaps::read(&Root::live(), &self.pid().to_string())?)
    }

    pub fn resident(&self, range: Range<u64>) -> Result<pagemap::PresentBytes, Box<dyn Error>> {
        Ok(pagemap::scan(&File::open(format!("/proc/{}/pagemap", self.pid()))?, range)?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn case(jdk: &Jdk, collector: &str, backing: &str, flags: &[&str]) -> TestResult {
    let folder = compiled("Regions", SOURCE)?;
    let mut journal = journal()?;
    match backing {
        "hugetlb" => {
            let pool = Setting::Pool { page_size: PageSize::new(Bytes(2 << 20))?, node: None };
            let got = journal.set(pool, &POOL.to_string())?;
            if got != POOL.to_string() {
                return Err(format!("a pool of {POOL} pages is needed, and the kernel made {got}").into());
            }
            pool_is_free()?;
        }
        "thp" => {
            journal.set(Setting::ThpEnabled { page_size: None }, "madvise")?;
            journal.set(Setting::ShmemEnabled { page_size: None }, "advise")?;
        }
        _ => {}
    }
    let collector = format!("-XX:+{collector}");
    let options = [&[collector.as_str()], flags].concat();
    plain(jdk, &options, backing, folder.path())?;
    if backing == "hugetlb" {
        pool_is_free()?;
    }
    tracked(jdk, &options, backing, folder.path())
}

/// Waits until the pages of an ended process are back in the pool.
fn pool_is_free() -> TestResult {
    wait_until("the pool is free", || {
        let pools = pools::read(&Root::live())?;
        let free = pools.iter().filter(|pool| pool.node.is_none()).map(|pool| pool.available().0).max();
        Ok(free.is_some_and(|free| free >= POOL))
    })
}

fn journal() -> Result<Journal, Box<dyn Error>> {
    let begin = Instant::now();
    loop {
        match Journal::open(&Root::live(), Path::new(STATE_DIR), "test of regions") {
            Err(JournalError::Busy(_)) if begin.elapsed() < MAX_WAIT_TIME => {
                thread::sleep(Duration::from_millis(200));
            }
            opened => return Ok(opened?),
        }
    }
}

/// A JVM without Native Memory Tracking.
fn plain(jdk: &Jdk, options: &[&str], backing: &str, folder: &Path) -> TestResult {
    let running = Running::start(jdk, options, folder)?;
    let vmas = running.vmas()?;
    let passive = regions::name(&Root::live(), running.pid(), &vmas, false, None);
    if passive.source != (Source::Passive { tables: true }) || !passive.notes.is_empty() {
        return Err(format!("{:?} {:?}", passive.source, passive.notes).into());
    }
    let reported = passive.jvm.as_ref().ok_or("no JVM")?;
    let collector = reported.collector.known().ok_or("no collector")?.to_string();
    assert!(options.iter().any(|option| option.contains(&collector)), "{collector} of {options:?}");
    assert_eq!(reported.max_heap.known(), Some(&Bytes(256 << 20)));
    huge_is_named(&running, &vmas, &passive, backing)?;

    let attached = regions::name(&Root::live(), running.pid(), &vmas, true, None);
    assert!(matches!(attached.source, Source::Attached { .. }), "{:?} {:?}", attached.source, attached.notes);
    huge_is_named(&running, &vmas, &attached, backing)?;
    let left = std::fs::read_dir(folder)?.flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with(".attach")).collect();
    assert!(left.is_empty(), "{left:?}");
    running.end_undisturbed()
}

/// A JVM with Native Memory Tracking.
fn tracked(jdk: &Jdk, options: &[&str], backing: &str, folder: &Path) -> TestResult {
    let options = [options, &["-XX:NativeMemoryTracking=detail"]].concat();
    let running = Running::start(jdk, &options, folder)?;
    // Attaching starts a listener thread, whose stack exists from here on.
    let (root, deadline) = (Root::live(), Deadline::after(attach::TIME_LIMIT, None));
    let jvm = attach::Jvm::connect(&root, running.pid(), deadline)?;
    let map = jvm.command("VM.native_memory detail")?;
    let vmas = running.vmas()?;
    for attach in [false, true] {
        let naming = regions::name(&Root::live(), running.pid(), &vmas, attach, None);
        huge_is_named(&running, &vmas, &naming, backing)?;
        tracking::agrees(&running, &naming, &map).map_err(|error| format!("attach {attach}: {error}"))?;
    }
    Ok(())
}

/// All huge pages are in named regions, and there are some.
fn huge_is_named(running: &Running, vmas: &[Vma], naming: &Naming, backing: &str) -> TestResult {
    let mut huge = Bytes::ZERO;
    for vma in vmas.iter().filter(|vma| vma.thp + vma.hugetlb > Bytes::ZERO) {
        let mut next = vma.addresses.start;
        while next < vma.addresses.end {
            let Some(range) = naming.at(next) else {
                return Err(format!("{next:#x} of {vma:?} has no name").into());
            };
            let end = range.end.min(vma.addresses.end);
            let here = running.resident(next..end)?.huge;
            if here > Bytes::ZERO && range.kind == RegionKind::Other {
                return Err(format!("{here} of huge pages in {range:x?} of {vma:?}").into());
            }
            huge += here;
            next = end;
        }
    }
    match backing {
        "base" => Ok(()),
        // Not every collector touches the whole heap, and huge-page allocations may fail.
        _ if huge >= Bytes(64 << 20) => Ok(()),
        _ => Err(format!("only {huge} on huge pages").into()),
    }
}

fn with_another_malloc(jdk: &Jdk) -> TestResult {
    let root = Root::live();
    let Some(library) = c_library::of_program(&root, &jdk.java)?.jemalloc(&root) else {
        return skip("no libjemalloc.so.2");
    };
    let folder = compiled("Regions", BUFFERS)?;
    let mut command = Command::new(&jdk.java);
    command.env("LD_PRELOAD", Path::new("/").join(library));
    let running = Running::start_by(&mut command, &["-XX:MaxDirectMemorySize=300m"], folder.path())?;
    let naming = regions::name(&root, running.pid(), &running.vmas()?, false, None);
    let mut tables = Bytes::ZERO;
    for table in naming.ranges.iter().filter(|range| range.kind == RegionKind::GcTable) {
        tables += running.resident(table.start..table.end)?.present;
    }
    // Those of a heap of 256 MiB.
    assert!(tables > Bytes::ZERO && tables < Bytes(16 << 20), "{tables} in tables: {naming:#?}");
    running.end_undisturbed()
}

/// A JVM to which nothing can attach: SIGQUIT would make it print its threads.
fn attaching_is_refused(jdk: &Jdk) -> TestResult {
    let folder = compiled("Regions", SOURCE)?;
    let running = Running::start(jdk, &["-XX:+DisableAttachMechanism"], folder.path())?;
    let naming = regions::name(&Root::live(), running.pid(), &running.vmas()?, true, None);
    assert_eq!(naming.source, Source::Passive { tables: true });
    says(
        &naming.notes.join("\n"),
        &[&format!("not attaching to process {}", running.pid()), "DisableAttach"],
    )?;
    assert!(naming.ranges.iter().any(|range| range.kind == RegionKind::Heap));
    running.end_undisturbed()
}

/// A JVM that SIGQUIT would end; its attach listener is started at startup.
fn attaching_sends_no_signal(jdk: &Jdk) -> TestResult {
    let folder = compiled("Regions", SOURCE)?;
    let running = Running::start(jdk, &["-Xrs"], folder.path())?;
    let naming = regions::name(&Root::live(), running.pid(), &running.vmas()?, true, None);
    assert!(matches!(naming.source, Source::Attached { .. }), "{:?} {:?}", naming.source, naming.notes);
    running.end_undisturbed()
}

/// A JVM in other namespaces, as in a container: with another process id and another /tmp.
fn in_its_own_name_spaces(jdk: &Jdk) -> TestResult {
    let folder = compiled("Regions", SOURCE)?;
    let mut command = Command::new("unshare");
    command.args(["--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "--"]).arg(&jdk.java);
    let unshare = Running::start_by(&mut command, &[], folder.path())?;
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", unshare.pid()))?;
    let pid: u32 = children.trim().parse()?;
    let vmas = smaps::read(&Root::live(), &pid.to_string())?;
    let naming = regions::name(&Root::live(), pid, &vmas, true, None);
    assert!(matches!(naming.source, Source::Attached { .. }), "{:?} {:?}", naming.source, naming.notes);
    for kind in [
        RegionKind::Heap,
        RegionKind::CodeCache,
        RegionKind::GcTable,
        RegionKind::Metaspace,
        RegionKind::ClassSpace,
    ] {
        assert!(naming.ranges.iter().any(|range| range.kind == kind), "{kind:?}: {naming:?}");
    }
    unshare.end_undisturbed()
}

fn no_jvm() -> TestResult {
    let mut child = Command::new("sleep").arg("600").env(MARKER, std::process::id().to_string()).spawn()?;
    let looked = smaps::read(&Root::live(), &child.id().to_string()).map(|vmas| {
        let naming = regions::name(&Root::live(), child.id(), &vmas, true, None);
        (vmas, naming)
    });
    let alive = child.try_wait()?.is_none();
    child.kill()?;
    child.wait()?;
    let (vmas, naming) = looked?;
    assert!(alive && matches!(naming.source, Source::NotAJvm(_)) && naming.jvm.is_none(), "{naming:?}");
    assert!(vmas.iter().all(|vma| naming.at(vma.addresses.start).is_some()), "{naming:?}");
    // The process has ended.
    let naming = regions::name(&Root::live(), child.id(), &vmas, true, None);
    assert!(matches!(naming.source, Source::NotAJvm(_)));
    Ok(())
}
