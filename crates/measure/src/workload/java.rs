//! A `java` launch line, with the flags that this JVM needs for a backing and a log of its own.

use std::{collections::BTreeMap, ffi::OsString, io::Write, path::Path, time::Duration};

use hugewise_evidence::observation::RegionOfInterest;
use hugewise_jvm::{
    collector::Collector,
    flags::{self, FinalFlags},
    gc_log::{self, Event, Reader, summary::Summary},
    jdks::Jdk,
    large_page_flags,
    launch::LaunchLine,
    rehearsal::{self, DemandError},
};
use hugewise_linux::{
    bounded_run,
    hugepages::backing::Backing,
    reading::Reason,
    sys::{file, process::Program},
    units::{Bytes, PageSize, seconds},
};

use super::{Conditions, OwnFigures, Prepared, Workload, WorkloadKind, metric::Metric};
use crate::{
    execution::{Launch, last_lines},
    serving::Session,
    touch::Touch,
};

pub(super) const FIGURES: [(&str, &str); 4] =
    [("gc_pauses", "s"), ("gc_worst_pause", "s"), ("gc_sys_share", ""), ("heap_ready", "s")];

/// Source of the embedded Java workload.
const TOUCH: &str = include_str!("Touch.java");
/// Time limit for compiling it; 1–2 s are usual.
const COMPILER_TIME_LIMIT: Duration = Duration::from_secs(60);
/// First JDK release with `-Xlog`.
const FIRST_JDK_WITH_XLOG: u32 = 9;

impl Workload {
    /// A `java` launch line; reads the flags from that `java`.
    pub fn java(line: LaunchLine, own: OwnFigures) -> Result<Workload, Reason> {
        let flags = flags::final_flags(&line)?;
        let name = format!("java {}", flags.version);
        Ok(Workload { name, turns: None, own, kind: WorkloadKind::Java { line, flags } })
    }

    /// The embedded workload, compiled into `scratch`, on a heap of 1 GiB, from its start to its end or in
    /// turns; and its launch line.
    pub fn java_touch(
        jdk: &Jdk,
        touch: &Touch,
        turns: bool,
        scratch: &Path,
    ) -> Result<(Workload, Vec<String>), Reason> {
        compile_touch(jdk, scratch)?;
        let iterations = if turns { "turns".to_owned() } else { touch.iterations.to_string() };
        let line = LaunchLine {
            wrapper: Vec::new(),
            java: jdk.java.display().to_string(),
            // Selects G1, because a JVM on a small machine would choose a collector whose generations cannot
            // hold an array of this size.
            options: ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:+AlwaysPreTouch", "-cp"]
                .map(str::to_owned)
                .into_iter()
                .chain([scratch.display().to_string()])
                .collect(),
            program: vec!["Touch".to_owned(), touch.bytes.0.to_string(), touch.reads.to_string(), iterations],
        };
        let command = line.command();
        let own = OwnFigures { metrics: vec![Metric::nanoseconds_per_operation()?], ..OwnFigures::default() };
        let workload = Workload::java(line, own)?;
        Ok((Workload { turns: turns.then_some(touch.bytes), ..workload }, command))
    }
}

/// Compiles the workload once: the launcher of source files would compile it at every start.
fn compile_touch(jdk: &Jdk, scratch: &Path) -> Result<(), Reason> {
    let source = scratch.join("Touch.java");
    let written = file::create_new(&source, 0o600).and_then(|mut file| file.write_all(TOUCH.as_bytes()));
    written.map_err(|error| Reason::new(format!("{}: {error}", source.display())))?;
    let mut compiler = Program::new(&jdk.java);
    compiler.args(["-m", "jdk.compiler/com.sun.tools.javac.Main", "-d"]).arg(scratch).arg(&source);
    let done = bounded_run::run_with_timeout(compiler, COMPILER_TIME_LIMIT)
        .map_err(|error| Reason::new(format!("{}: {error}", jdk.java.display())))?;
    match done {
        Some(done) if done.status.success() => Ok(()),
        Some(done) => {
            let said = last_lines(&done.stderr);
            Reason::err(format!("the Java compiler ended with {}{said}", done.status))
        }
        None => {
            let limit = COMPILER_TIME_LIMIT.as_secs();
            Reason::err(format!("the Java compiler did not end within {limit} s"))
        }
    }
}

pub(super) fn prepare(
    given: &LaunchLine,
    flags: &FinalFlags,
    backing: Backing,
    conditions: &Conditions,
) -> Result<Prepared, Reason> {
    let mut options = large_page_flags::options(flags, backing)?;
    let ours = options.join(" ");
    let mut region = RegionOfInterest::Anonymous;
    if flags.major().is_some_and(|major| major >= FIRST_JDK_WITH_XLOG) {
        // Another user cannot write to the folder.
        let log = match conditions.session.and_then(Session::output_of_other_user) {
            Some(output) => {
                options.push(gc_log::stdout_log_option());
                output
            }
            None => {
                let log = conditions.scratch.join("gc.log");
                options.push(gc_log::log_option(&log));
                log
            }
        };
        region = RegionOfInterest::JavaHeap(log);
    }
    let (line, mut aside) = given.with_page_flags(&options);
    let (environment, of_variables) = line.variables_without_page_flags(&|name| std::env::var(name).ok());
    aside.extend(of_variables);
    let mut notes = vec![format!("added {ours}")];
    if !aside.is_empty() {
        notes.push(format!("removed {}", aside.join(", ")));
    }
    notes.extend(line.cautions());
    let pools =
        if backing.is_explicit() { pools(given, flags, backing, conditions)? } else { BTreeMap::new() };
    Ok(Prepared {
        launch: Launch {
            command: line.with_environment(&environment).command().into_iter().map(OsString::from).collect(),
            thp_disabled: backing == Backing::Base,
            ..Launch::default()
        },
        region,
        pools,
        shared_memory: flags.collector() == Some(Collector::Z),
        passed: None,
        notes,
    })
}

/// Demand of the launch line on the pools: exact to the page if the JVM can be rehearsed, else an upper
/// bound.
fn pools(
    line: &LaunchLine,
    flags: &FinalFlags,
    backing: Backing,
    conditions: &Conditions,
) -> Result<BTreeMap<PageSize, Bytes>, Reason> {
    let sizes = conditions.sizes;
    match rehearsal::launch_demand_with(line, flags, backing, sizes) {
        Ok(asked) => {
            let of = |&size: &PageSize| (size, asked.demand.pages(size).1 * size);
            Ok(sizes.hugetlb.iter().map(of).filter(|(_, bytes)| *bytes > Bytes::ZERO).collect())
        }
        Err(DemandError::Rehearse { .. }) => bound(flags, backing, conditions),
        Err(error) => Err(error.into()),
    }
}

/// Upper bound: the heap on the page size of the backing, the rest on the default huge page size.
fn bound(
    flags: &FinalFlags,
    backing: Backing,
    conditions: &Conditions,
) -> Result<BTreeMap<PageSize, Bytes>, Reason> {
    let Some(demand) = flags.explicit_demand() else {
        return Reason::err("this JVM does not report its heap size");
    };
    let Some(default) = conditions.sizes.default_hugetlb else {
        return Reason::err("this kernel has no default huge page size");
    };
    let heap_size = conditions.sizes.huge_page_of(backing).unwrap_or(default);
    let mut pools = BTreeMap::from([(default, demand.others)]);
    *pools.entry(heap_size).or_default() += demand.heap.align_up(heap_size).unwrap_or(demand.heap);
    Ok(pools)
}

/// Figures of the log: total and worst pause, share of system time in them, and time from the start until the
/// heap was ready. Empty without a log.
pub(super) fn figures(log: &Path, started_ns: u64) -> BTreeMap<String, f64> {
    let mut pauses = Summary::default();
    let mut ready_ns = None;
    let mut take = |event: Event<'_>| match event {
        Event::Init(stamp) => ready_ns = stamp.best_ns(),
        event => pauses.add(&event),
    };
    let mut reader = Reader::default();
    // A truncated log still counts up to its end.
    if let Ok(log) = file::open(log) {
        let _ = reader.read(log, &mut take);
    }
    reader.finish(&mut take);
    let ready = ready_ns.map(|ready| seconds(ready.saturating_sub(started_ns)));
    let (total_ns, cpu) = pauses.totals();
    let worst_ns = pauses.kinds.iter().map(|kind| kind.durations.max_ns).max().unwrap_or(0);
    let worked_ns = cpu.user_ns + cpu.sys_ns;
    let values = [
        ready.map(|_| seconds(total_ns)),
        ready.map(|_| seconds(worst_ns)),
        (worked_ns > 0).then(|| cpu.sys_ns as f64 / worked_ns as f64),
        ready,
    ];
    FIGURES.iter().zip(values).filter_map(|((name, _), value)| Some(((*name).to_owned(), value?))).collect()
}
