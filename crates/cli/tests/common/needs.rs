//! Requirements of tests on the machine, and the reasons why they are not met.

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

use hugewise_jvm::jdks::{self, Environment, Jdk};
use hugewise_linux::{proc::meminfo, root::Root, units::Bytes};

/// Environment variable with the path of `thpmaps`, of tools/mm in the kernel's source; it needs Python and
/// numpy.
pub const THPMAPS: &str = "HUGEWISE_THPMAPS";
/// Environment variable with the path of `page-types`, of tools/mm in the kernel's source.
pub const PAGE_TYPES: &str = "HUGEWISE_PAGE_TYPES";
/// Environment variable with the folder of the jars of the off-heap caches of docs/run.md.
pub const OFF_HEAP_JARS: &str = "HUGEWISE_OFFHEAP_JARS";
/// The program of systemd.
pub const SYSTEMD: &str = "/usr/lib/systemd/systemd";
/// Environment variable: if it is set, tests that take long are run.
const FULL: &str = "HUGEWISE_FULL";

#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// Root, with writable settings.
    Root,
    /// There are pools of 2 MiB pages.
    Pool,
    /// There are pools of 1 GiB pages, and memory for one page.
    GiantPool,
    /// Free memory in MiB, without reclaim.
    Free(u64),
    /// THP is built in.
    Thp,
    /// A JDK is installed.
    Java,
    /// A JDK of this major version is installed.
    Jdk(u32),
    /// PostgreSQL 15 or later is installed.
    Postgres,
    /// The server of MariaDB is installed.
    Mariadb,
    /// A C compiler with glibc.
    Compiler,
    /// The jars of the off-heap caches of docs/run.md.
    OffHeapJars,
    /// `strace` is installed and may trace.
    Strace,
    /// Mount namespaces can be created.
    Namespaces,
    /// The kernel's tools `thpmaps` and `page-types`.
    KernelTools,
    /// systemd is installed; it need not run.
    Systemd,
    /// Control groups with a memory limit can be created.
    MemoryGroup,
    /// The memory of the whole machine may be fragmented during the test.
    Fragment,
    /// Tests that take long are run.
    Full,
}

/// The reason why a need is not met; `None` if it is met.
pub fn missing(need: Need) -> Option<String> {
    let met = match need {
        Need::Root => is_root(),
        Need::Pool => pool("2048kB"),
        Need::GiantPool => {
            pool("1048576kB") && memory_available().is_some_and(|bytes| bytes > Bytes(4 << 30))
        }
        Need::Free(mib) => meminfo::read(&Root::live()).free.known().is_some_and(|free| free.0 >> 20 >= mib),
        Need::Thp => Path::new("/sys/kernel/mm/transparent_hugepage/enabled").exists(),
        Need::Java => !jdks().is_empty(),
        Need::Jdk(major) => jdks().iter().any(|jdk| jdk.major == major),
        Need::Postgres => postgres().is_some(),
        Need::Mariadb => {
            let prepares = ["mariadb-install-db", "my_print_defaults"];
            mariadb().is_some() && prepares.iter().all(|name| Path::new("/usr/bin").join(name).is_file())
        }
        Need::Compiler => works(Command::new("cc").arg("--version")),
        Need::OffHeapJars => env::var_os(OFF_HEAP_JARS).is_some_and(|dir| Path::new(&dir).is_dir()),
        Need::Namespaces => works(Command::new("unshare").args(["-m", "true"])),
        Need::Strace => works(Command::new("strace").args(["-o", "/dev/null", "true"])),
        Need::Systemd => Path::new(SYSTEMD).is_file(),
        Need::MemoryGroup => memory_group().is_some(),
        Need::Fragment => may_fragment(),
        Need::Full => env::var_os(FULL).is_some(),
        Need::KernelTools => [THPMAPS, PAGE_TYPES].iter().all(|name| env::var_os(name).is_some()),
    };
    let reason = match need {
        Need::Root => "needs root",
        Need::Pool => "no pool of 2 MiB pages",
        Need::GiantPool => "no pool of 1 GiB pages, or no memory for one",
        Need::Free(mib) => return (!met).then(|| format!("less than {mib} MiB of memory is free")),
        Need::Thp => "a kernel without THP",
        Need::Java => "no JDK",
        Need::Jdk(major) => return (!met).then(|| format!("no JDK {major}")),
        Need::Postgres => "no PostgreSQL 15 or later in /usr/lib/postgresql",
        Need::Mariadb => "no MariaDB server that mariadb-install-db can prepare",
        Need::Compiler => "no cc",
        Need::OffHeapJars => "HUGEWISE_OFFHEAP_JARS names no folder (docs/run.md)",
        Need::Namespaces => "unshare -m does not work",
        Need::Strace => "strace does not work",
        Need::Systemd => "no systemd",
        Need::MemoryGroup => "no control group for memory",
        Need::Fragment => "takes the whole machine's memory: HUGEWISE_FRAGMENT=1",
        Need::Full => "takes long: HUGEWISE_FULL=1",
        Need::KernelTools => "HUGEWISE_THPMAPS and HUGEWISE_PAGE_TYPES name no programs",
    };
    (!met).then(|| reason.to_owned())
}

/// The program of the newest PostgreSQL, of 15 at least, where Debian's packages put it.
pub fn postgres() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let major = |name: std::ffi::OsString| name.to_str()?.parse::<u32>().ok().filter(|major| *major >= 15);
    let newest = versions.filter_map(|version| major(version.file_name())).max()?;
    Some(PathBuf::from(format!("/usr/lib/postgresql/{newest}/bin/postgres")))
        .filter(|program| program.is_file())
}

/// The program of MariaDB, where the packages of distributions put it.
pub fn mariadb() -> Option<PathBuf> {
    let folders = ["/usr/sbin", "/usr/libexec", "/usr/bin"].map(|folder| Path::new(folder).join("mariadbd"));
    folders.into_iter().find(|program| program.is_file())
}

/// All JDKs in the usual folders, the newest first.
pub fn jdks() -> Vec<Jdk> {
    jdks::find(&Root::live(), &Environment::default())
}

/// Whether this JVM starts with these options. Every JVM is asked once.
pub fn starts_with(java: &Path, options: &[&str]) -> bool {
    static ANSWERS: Mutex<BTreeMap<(PathBuf, String), bool>> = Mutex::new(BTreeMap::new());
    let mut answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    let question = (java.to_owned(), options.join(" "));
    *answers.entry(question).or_insert_with(|| works(Command::new(java).args(options).arg("-version")))
}

/// The folder in which control groups with a memory limit can be created.
pub fn memory_group() -> Option<PathBuf> {
    let v1 = Path::new("/sys/fs/cgroup/memory");
    let v2 = Path::new("/sys/fs/cgroup");
    let hands_on = fs::read_to_string(v2.join("cgroup.subtree_control"));
    if v1.join("memory.limit_in_bytes").exists() || v1.join("memory.usage_in_bytes").exists() {
        Some(v1.to_owned())
    } else {
        hands_on.is_ok_and(|all| all.split_whitespace().any(|one| one == "memory")).then(|| v2.to_owned())
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0)
        && fs::OpenOptions::new()
            .write(true)
            .open("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
            .is_ok()
}

/// Whether tests may fragment the memory of the whole machine.
pub fn may_fragment() -> bool {
    env::var_os("HUGEWISE_FRAGMENT").is_some_and(|set| set == "1") && Path::new("/proc/buddyinfo").exists()
}

fn pool(size: &str) -> bool {
    Path::new(&format!("/sys/kernel/mm/hugepages/hugepages-{size}/nr_hugepages")).exists()
}

fn memory_available() -> Option<Bytes> {
    meminfo::read(&Root::live()).available.known().copied()
}

fn works(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
