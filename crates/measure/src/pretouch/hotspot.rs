//! HotSpot's own pretouch: the heap of a JVM with `AlwaysPreTouch`, timed by the JVM's log.
//!
//! G1 logs the start of each pretouch. The heap is the first, and the next line is written after it, so that
//! the time between the two lines is the duration, including the start of the workers. (The tables that
//! follow have lines of their own and are not counted.)
//!
//! `java -version` writes the version to standard error once the heap is ready. Here that is a full socket,
//! so that the JVM blocks until its coverage has been read.

use std::{
    fs,
    io::{self, ErrorKind, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use hugewise_evidence::observation::{Observer, RegionOfInterest};
use hugewise_jvm::{
    flags::{self, FinalFlags},
    large_page_flags,
    launch::{LaunchLine, OPTION_VARIABLES},
};
use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    interrupt::Interrupt,
    proc::vmstat::VmStat,
    reading::{Reading, Reason},
    root::Root,
    sys::{
        file,
        process::{GroupLeader, Program},
    },
    units::Bytes,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Case, Sample, worker};
use crate::execution::{ExecutionError, Launch, last_lines};

/// Interval at which the JVM's log is read.
const LOG_READ_INTERVAL: Duration = Duration::from_millis(5);
/// Longest start of a JVM, in addition to [`START_TIME_LIMIT_PER_GIB`] per GiB of heap.
const START_TIME_LIMIT: Duration = Duration::from_secs(30);
/// Additional time limit per GiB of heap; with stalls, seconds per GiB were observed.
const START_TIME_LIMIT_PER_GIB: Duration = Duration::from_secs(20);
/// Largest log and output of a JVM at its start, in bytes.
const MAX_LOG_BYTES: u64 = 16 << 20;
/// The first release with `-Xlog`.
const FIRST_JDK_WITH_XLOG: u32 = 9;

/// A JVM whose pretouch is measured.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Jvm {
    /// Name and version, such as `java 25.0.3`.
    pub name: String,
    /// Path of its `java`.
    pub java: PathBuf,
    /// Default of `PreTouchParallelChunkSize`, in bytes; null if the JVM does not report it.
    #[serde(rename = "default_chunk_bytes")]
    pub default_chunk: Option<Bytes>,
    #[serde(skip)]
    flags: FinalFlags,
}

impl Jvm {
    /// Reads version and flags from a `java`; the error says why its pretouch cannot be measured.
    pub fn ask(java: &Path) -> Result<Jvm, Reason> {
        let flags = final_flags(java, vec!["-XX:+UseG1GC".to_owned()])?;
        if flags.major().is_none_or(|major| major < FIRST_JDK_WITH_XLOG) {
            let version = flags.version;
            return Reason::err(format!("JDK {version} does not log its pretouch; JDK 9 and later do"));
        }
        Ok(Jvm {
            name: format!("java {}", flags.version),
            java: java.to_owned(),
            default_chunk: flags.bytes("PreTouchParallelChunkSize"),
            flags,
        })
    }

    /// A JVM without flags, for tests.
    #[cfg(test)]
    pub(super) fn named(name: &str, default_chunk: Option<Bytes>) -> Jvm {
        Jvm { name: name.to_owned(), java: PathBuf::new(), default_chunk, flags: FinalFlags::default() }
    }

    fn options(&self, case: &Case, chunk: Option<Bytes>) -> Result<Vec<String>, Reason> {
        let mut options = vec![
            format!("-Xms{}", case.bytes.0),
            format!("-Xmx{}", case.bytes.0),
            "-XX:+UseG1GC".to_owned(),
            format!("-XX:ParallelGCThreads={}", case.threads),
        ];
        options.extend(large_page_flags::options(&self.flags, case.backing)?);
        options.extend(chunk.map(|chunk| format!("-XX:PreTouchParallelChunkSize={}", chunk.0)));
        Ok(options)
    }

    /// Checks that the JVM accepts the options of a case; returns upper bounds of its demand on the
    /// pools: the heap, and the memory on the default huge page size.
    pub fn accepts(&self, case: &Case, chunk: Option<Bytes>) -> Result<(Bytes, Bytes), Reason> {
        let flags = final_flags(&self.java, self.options(case, chunk)?)?;
        match flags.bytes("MaxHeapSize") {
            Some(heap) if heap == case.bytes => {}
            heap => {
                let heap = heap.map_or_else(|| "of unknown size".to_owned(), |heap| format!("of {heap}"));
                let asked = case.bytes.0;
                return Reason::err(format!("{} allocates a heap {heap} for -Xmx{asked}", self.name));
            }
        }
        match flags.explicit_demand() {
            Some(demand) => Ok((demand.heap, demand.others)),
            None => Reason::err("this JVM does not report its heap size"),
        }
    }

    /// Starts the JVM once, with the environment of `marked`; its files go to `scratch`.
    pub fn measure(
        &self,
        case: &Case,
        chunk: Option<Bytes>,
        marked: &Launch,
        scratch: &Path,
        interrupt: &Interrupt,
    ) -> Result<Sample, ExecutionError> {
        let name = self.java.display().to_string();
        let io = |source| ExecutionError::Io { program: name.clone(), source };
        let refused = |reason: String| io(io::Error::other(reason));
        let (log, stdout) = (scratch.join("pretouch.log"), scratch.join("pretouch.out"));
        match fs::remove_file(&log) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        let (full, _kept) = full_socket().map_err(io)?;
        let mut command = Program::new(&self.java);
        command
            .args(self.options(case, chunk).map_err(|reason| refused(reason.into()))?)
            .args(["-XX:+AlwaysPreTouch", "-XX:ErrorFile=/dev/null", &log_option(&log), "-version"])
            .stdin(Stdio::null())
            .stdout(file::create(&stdout, 0o600).map_err(io)?)
            .stderr(OwnedFd::from(full));
        for variable in OPTION_VARIABLES {
            command.env_remove(variable);
        }
        marked.set_environment(&mut command);
        let root = Root::live();
        let before = VmStat::read(&root);
        command.thp_disabled(case.backing == Backing::Base);
        let mut child =
            command.start().map_err(|source| ExecutionError::Start { program: name.clone(), source })?;
        let step = wait_for_heap(&mut child, case, &log, &stdout, interrupt, &io)?;
        let (fallbacks, stalls) = worker::growth(&before, &VmStat::read(&root));
        let coverage = coverage(&root, &log, child.pid());
        let begin = Instant::now();
        drop(child);
        if step.bytes != case.bytes {
            return Err(refused(format!("its log shows a pretouch of {}, not of its heap", step.bytes)));
        }
        Ok(Sample {
            repetition: 0,
            seconds: step.nanoseconds as f64 / 1e9,
            release_seconds: Reading::Known(begin.elapsed().as_secs_f64()),
            coverage,
            fallbacks,
            stalls,
            threads: step.workers,
            chunk: chunk.or(self.default_chunk),
        })
    }
}

fn final_flags(java: &Path, options: Vec<String>) -> Result<FinalFlags, Reason> {
    let java = java.display().to_string();
    Ok(flags::final_flags(&LaunchLine { java, options, ..LaunchLine::default() })?)
}

/// A socket whose buffer is full, and its peer, which must stay open.
fn full_socket() -> io::Result<(UnixStream, UnixStream)> {
    let (mut ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    // Large pieces first, then single bytes for the remainder.
    for piece in [&[b'\n'; 4096][..], &[b'\n'; 1][..]] {
        while match ours.write(piece) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => return Err(error),
        } {}
    }
    ours.set_nonblocking(false)?;
    Ok((ours, theirs))
}

/// `timenanos` is CLOCK_MONOTONIC; these tags log the addresses of the heap and its pretouch.
fn log_option(file: &Path) -> String {
    format!(
        "-Xlog:gc+heap=debug,gc+init=info,gc+heap+coops=debug,pagesize=info:file=\"{}\":timenanos,level,tags:\
         filecount=0",
        file.display()
    )
}

fn wait_for_heap(
    child: &mut GroupLeader,
    case: &Case,
    log: &Path,
    stdout: &Path,
    interrupt: &Interrupt,
    failed: &dyn Fn(io::Error) -> ExecutionError,
) -> Result<LoggedPretouch, ExecutionError> {
    let gib = case.bytes.0.div_ceil(1 << 30);
    let limit = START_TIME_LIMIT + START_TIME_LIMIT_PER_GIB * u32::try_from(gib).unwrap_or(u32::MAX);
    let begin = Instant::now();
    let refused = |reason: String| Err(failed(io::Error::other(reason)));
    let printed =
        || String::from_utf8_lossy(&file::read(stdout, MAX_LOG_BYTES).unwrap_or_default()).into_owned();
    loop {
        let ended = child.wait(LOG_READ_INTERVAL).map_err(failed)?;
        let text = file::read(log, MAX_LOG_BYTES).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        // The collector logs its settings after all of the heap is set up.
        let ready = text.contains("[gc,init");
        match heap_step(&text) {
            Some(step) if ready => return Ok(step),
            _ if ready && text.contains("Pre-touch:") => {
                return refused("its log does not show when its heap was pretouched".to_owned());
            }
            _ => {}
        }
        if let Some(ended) = ended {
            return refused(format!("{} before its heap was ready{}", ended.status, last_lines(&printed())));
        }
        if interrupt.signal().is_some() {
            return Err(ExecutionError::Interrupted);
        }
        if begin.elapsed() > limit {
            let limit = limit.as_secs();
            return refused(format!("its heap was not ready after {limit} s{}", last_lines(&printed())));
        }
    }
}

/// The pretouch of the heap, as logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LoggedPretouch {
    bytes: Bytes,
    workers: usize,
    nanoseconds: u64,
}

/// The first pretouch in the log, which is that of the heap: from its line to the next line with a time.
fn heap_step(log: &str) -> Option<LoggedPretouch> {
    let mut lines = log.lines().skip_while(|line| !line.contains("Running G1 PreTouch with "));
    let first = lines.next()?;
    let (_, said) = first.split_once("Running G1 PreTouch with ")?;
    let workers = said.split(' ').next()?.parse().ok()?;
    let (_, bytes) = said.split_once("pre-touching ")?;
    let bytes = bytes.trim_end().trim_end_matches('.').strip_suffix('B')?.parse().ok()?;
    let next = lines.find_map(time)?;
    Some(LoggedPretouch { bytes: Bytes(bytes), workers, nanoseconds: next.checked_sub(time(first)?)? })
}

/// Time of a log line in nanoseconds: 6184588 for `[6184588ns][debug][gc,heap] …`.
fn time(line: &str) -> Option<u64> {
    line.strip_prefix('[')?.split_once("ns]")?.0.parse().ok()
}

fn coverage(root: &Root, log: &Path, pid: u32) -> Reading<f64> {
    let thp = PageSizes::read(root).ok().and_then(|sizes| sizes.thp);
    let mut observer = Observer::new(root, RegionOfInterest::JavaHeap(log.to_owned()), thp);
    observer.sample(pid);
    match observer.coverage {
        Some(coverage) => worker::share(&coverage).into(),
        None => Reading::unknown("the heap was not found in smaps of the JVM"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOG: &str = "\
[100ns][info ][pagesize] Heap:  min=1G max=1G base=0x00000000c0000000 page_size=4K size=1G
[6184588ns][debug][gc,heap ] Running G1 PreTouch with 2 workers for 256 work units pre-touching 1073741824B.
[214242234ns][debug][gc,heap ] Running G1 PreTouch with 2 workers for 4 work units pre-touching 16777216B.
[227816936ns][info ][gc,init ] Version: 17.0.15+6 (release)
";

    #[test]
    fn the_heap_is_the_first_step_of_the_log() {
        let step = LoggedPretouch { bytes: Bytes(1 << 30), workers: 2, nanoseconds: 208_057_646 };
        assert_eq!(heap_step(LOG), Some(step));
        let until =
            |lines: usize| LOG.lines().take(lines).map(|line| format!("{line}\n")).collect::<String>();
        assert_eq!(heap_step(&until(2)), None, "it is not done yet");
        assert_eq!(heap_step(&until(3)), Some(step));
    }

    #[test]
    fn a_full_socket_takes_nothing_more() -> io::Result<()> {
        let (mut ours, _theirs) = full_socket()?;
        ours.set_nonblocking(true)?;
        assert!(ours.write(b"x").is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
        Ok(())
    }

    proptest! {
        #[test]
        fn no_log_makes_it_panic(text in "(.|\n)*", cut in 0..LOG.len()) {
            let _ = heap_step(&text);
            let _ = heap_step(&format!("{}{text}{}", &LOG[..cut], &LOG[cut..]));
        }
    }
}
