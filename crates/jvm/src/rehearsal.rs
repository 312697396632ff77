//! Demand of a launch line, from a rehearsal of its `java`.

use std::{env, io, time::Duration};

use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    rehearsal::{
        self, Conditions, Ending, HugetlbCall, HugetlbRequest, Placement, Rehearsal, SimulatedPools,
    },
    units::Bytes,
};

use crate::{
    collector::Collector,
    demand::{Demand, HeapSizes, Java, RegionDemand},
    flags::{self, FinalFlags, FlagsError},
    large_page_flags,
    launch::{LaunchError, LaunchLine},
    page_size_log::{self, LoggedRegion},
};

/// Time limit of one start; 1–2 s are usual on a loaded machine.
const START_TIME_LIMIT: Duration = Duration::from_secs(30);
/// Error of a file that may not be executed.
const EACCES: i32 = 13;
/// Maximum number of messages kept of one start.
const MAX_MESSAGES: usize = 6;

/// Why the demand of a launch line is unknown.
#[derive(Debug, thiserror::Error)]
pub enum DemandError {
    #[error(transparent)]
    Flags(#[from] FlagsError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The JVM does not support the backing.
    #[error("{0}")]
    Impossible(String),
    #[error("{java} could not be started under ptrace and seccomp, which the rehearsal needs: {source}")]
    Rehearse { java: String, source: io::Error },
    /// The JVM exits at its start, even with sufficient pools.
    #[error("{java} does not start with these options: {detail}")]
    Exits { java: String, detail: String },
}

/// Demand of a launch line, and the options that select the backing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchDemand {
    pub demand: Demand,
    /// Options that select the backing.
    pub options: Vec<String>,
    /// Options of the line about large pages that `options` replaces.
    pub set_aside: Vec<String>,
}

/// Determines the demand of a launch line on a backing, independent of the machine's pools.
pub fn launch_demand(
    line: &LaunchLine,
    backing: Backing,
    sizes: &PageSizes,
) -> Result<LaunchDemand, DemandError> {
    let flags = flags_of(line, sizes)?;
    launch_demand_with(line, &flags, backing, sizes)
}

/// Final flags of a launch line's JVM with sufficient pools; with insufficient pools ZGC would not start.
pub fn flags_of(line: &LaunchLine, sizes: &PageSizes) -> Result<FinalFlags, DemandError> {
    flags::with_unlisted_flags(line, &|options| {
        let rehearsal = rehearse(line, options, sizes, &SimulatedPools::new())?;
        Ok(flags::parse_output(line, rehearsal.status, &rehearsal.stdout, &rehearsal.stderr)?)
    })
}

fn rehearse(
    line: &LaunchLine,
    options: &[String],
    sizes: &PageSizes,
    pools: &SimulatedPools,
) -> Result<Rehearsal, DemandError> {
    let java = || line.java.clone();
    let flags_command = flags::flags_command(line, options)?;
    // With a wrapper, its first word.
    let program = flags_command.command.name();
    let conditions = Conditions {
        sizes,
        pools,
        placement: Placement::Upwards,
        ending: Ending::Exit,
        timeout: START_TIME_LIMIT,
    };
    rehearsal::rehearse(flags_command.command, &conditions).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::Interrupted => {
            FlagsError::Start { java: program, source }.into()
        }
        // Of the file; tracing would be refused with EPERM.
        _ if source.raw_os_error() == Some(EACCES) => FlagsError::Start { java: program, source }.into(),
        io::ErrorKind::TimedOut => FlagsError::TimedOut { java: java(), limit: START_TIME_LIMIT }.into(),
        _ => DemandError::Rehearse { java: java(), source },
    })
}

/// Like [`launch_demand`], with the JVM's flags already known.
pub fn launch_demand_with(
    line: &LaunchLine,
    flags: &FinalFlags,
    backing: Backing,
    sizes: &PageSizes,
) -> Result<LaunchDemand, DemandError> {
    let options =
        large_page_flags::options(flags, backing).map_err(|reason| DemandError::Impossible(reason.into()))?;
    let (line, mut set_aside) = line.with_page_flags(&options);
    // Some variables take effect after the command line.
    let (variables, aside) = line.variables_without_page_flags(&|name| env::var(name).ok());
    set_aside.extend(aside);
    let line = line.with_environment(&variables);
    let performance = RehearsedStart::of(&line, flags, sizes, &SimulatedPools::new())?;
    if !performance.rehearsal.status.success() {
        let mut detail = performance.messages();
        detail.push(performance.rehearsal.status.to_string());
        return Err(DemandError::Exits { java: line.java, detail: detail.join(" / ") });
    }
    let flags = &performance.flags;
    let heap = HeapSizes {
        initial_bytes: flags.bytes("InitialHeapSize").unwrap_or_default(),
        max_bytes: flags.bytes("MaxHeapSize").unwrap_or_default(),
    };
    let demand = Demand {
        java: Java {
            path: line.java.clone(),
            version: flags.version.clone(),
            collector: flags.collector().map_or("unknown", Collector::name).to_owned(),
        },
        heap,
        regions: performance.regions(backing, sizes),
        direct_memory: flags
            .bytes("MaxDirectMemorySize")
            .map(|most| if most.0 > 0 { most } else { heap.max_bytes }),
    };
    Ok(LaunchDemand { demand, options, set_aside })
}

/// Start of a JVM with simulated pools.
#[derive(Debug)]
pub struct RehearsedStart {
    /// Requests and exit status of the JVM.
    pub rehearsal: Rehearsal,
    /// Final flags of the JVM with the simulated pools.
    pub flags: FinalFlags,
    log: Vec<LoggedRegion>,
}

impl RehearsedStart {
    /// Starts the `java` of a line with pools of the sizes in `pools`; `flags` are the fallback if it fails.
    pub fn of(
        line: &LaunchLine,
        flags: &FinalFlags,
        sizes: &PageSizes,
        pools: &SimulatedPools,
    ) -> Result<RehearsedStart, DemandError> {
        let logs = flags.major().is_some_and(|major| major >= 9);
        let options: Vec<String> = logs.then(|| page_size_log::OPTION.to_owned()).into_iter().collect();
        let rehearsal = rehearse(line, &options, sizes, pools)?;
        let printed = flags::parse_output(line, rehearsal.status, &rehearsal.stdout, &rehearsal.stderr);
        let flags = match printed {
            Err(error @ FlagsError::BeforeJvm { .. }) => return Err(error.into()),
            // A JVM that does not start prints no flags.
            printed => printed.unwrap_or_else(|_| flags.clone()),
        };
        let log = page_size_log::parse(&rehearsal.stdout);
        Ok(RehearsedStart { rehearsal, flags, log })
    }

    /// Warnings and errors that the JVM printed, each once.
    pub fn messages(&self) -> Vec<String> {
        let lines = self.rehearsal.stdout.lines().chain(self.rehearsal.stderr.lines());
        let telling = lines.filter(|line| {
            let inside = ["[warning]", "[error]", " warning: "];
            let first = ["Error", "Unrecognized", "Conflicting"];
            inside.iter().any(|sign| line.contains(sign)) || first.iter().any(|sign| line.starts_with(sign))
        });
        let mut messages: Vec<String> = Vec::new();
        for line in telling.map(str::trim) {
            // Messages that differ in the address only count as one message.
            let kind = |line: &str| line.split(" req_addr").next().unwrap_or_default().to_owned();
            if !messages.iter().any(|known| kind(known) == kind(line)) {
                messages.push(line.to_owned());
            }
        }
        messages.truncate(MAX_MESSAGES);
        messages
    }

    /// Regions once the JVM has started: first those with pages from pools, in the order of the requests,
    /// then those of its log.
    pub fn regions(&self, backing: Backing, sizes: &PageSizes) -> Vec<RegionDemand> {
        let mut regions: Vec<RegionDemand> = Vec::new();
        let takes_pages = |request: &&HugetlbRequest| request.held > Bytes::ZERO || request.limit.is_some();
        for request in self.rehearsal.requests.iter().filter(takes_pages) {
            let region = RegionDemand {
                name: self.name(request),
                page_size_bytes: request.page_size,
                bytes_at_start: request.held,
                bytes: self.largest(request),
            };
            add(&mut regions, region);
        }
        for logged in self.log.iter().filter(|logged| !self.is_on_requested_pages(logged)) {
            // Without a granted request, a hugetlb page size in the log is only the JVM's assumption.
            let thp = backing == Backing::Thp && logged.page_size != sizes.base;
            let region = RegionDemand {
                name: plain_name(&logged.name),
                page_size_bytes: if thp { sizes.thp.unwrap_or(logged.page_size) } else { sizes.base },
                bytes_at_start: self.committed_at_start(logged),
                bytes: logged.size,
            };
            add(&mut regions, region);
        }
        // ZGC does not log its heap, and JDK 8 has no such log.
        if !regions.iter().any(|region| region.name == HEAP) {
            let bytes = self.flags.bytes("MaxHeapSize").unwrap_or_default();
            let thp = sizes.thp.filter(|_| backing == Backing::Thp);
            regions.insert(
                0,
                RegionDemand {
                    name: HEAP.to_owned(),
                    page_size_bytes: thp.unwrap_or(sizes.base),
                    bytes_at_start: self.flags.bytes("InitialHeapSize").unwrap_or(bytes).min(bytes),
                    bytes,
                },
            );
        }
        regions
    }

    /// The part of a region on no pool page that the JVM commits at its start; the rest is only reserved.
    fn committed_at_start(&self, logged: &LoggedRegion) -> Bytes {
        let heap = self.flags.bytes("InitialHeapSize").zip(self.flags.bytes("MaxHeapSize"));
        let committed = match plain_name(&logged.name).as_str() {
            HEAP => heap.map(|(initial, _)| initial),
            CODE_CACHE => logged.min,
            // Source: g1PageBasedVirtualSpace.cpp; G1 commits its tables with the regions of the heap.
            _ if self.flags.collector() == Some(Collector::G1) => heap.and_then(|(initial, most)| {
                let bytes = u128::from(logged.size.0) * u128::from(initial.0);
                let bytes = Bytes(u64::try_from(bytes.checked_div(most.0.into())?).ok()?);
                Some(bytes.pages_needed(logged.page_size) * logged.page_size)
            }),
            _ => None,
        };
        committed.map_or(logged.size, |bytes| bytes.min(logged.size))
    }

    /// Size to which a request may grow. ZGC sizes its heap file for the maximum heap; before JDK 13 the file
    /// grows with the heap.
    fn largest(&self, request: &HugetlbRequest) -> Bytes {
        let max_heap = self.flags.bytes("MaxHeapSize").filter(|_| request.means == HugetlbCall::File);
        request.held.max(request.limit.unwrap_or_default()).max(max_heap.unwrap_or_default())
    }

    fn is_on_requested_pages(&self, logged: &LoggedRegion) -> bool {
        let covers = |start: u64, bytes: Bytes| (start..start.saturating_add(bytes.0)).contains(&logged.base);
        self.rehearsal.requests.iter().any(|request| {
            request.held > Bytes::ZERO && request.start.is_some_and(|start| covers(start, request.asked))
        })
    }

    /// Name of a requested region: the logged name, if the log has a region at this address.
    fn name(&self, request: &HugetlbRequest) -> String {
        if request.means == HugetlbCall::File {
            return HEAP.to_owned();
        }
        if request.executable {
            return CODE_CACHE.to_owned();
        }
        let start = request.start.unwrap_or_default();
        if let Some(logged) = self.log.iter().find(|logged| logged.base == start) {
            return plain_name(&logged.name);
        }
        let heap = self.flags.bytes("MaxHeapSize").unwrap_or_default();
        let roundest = Bytes(request.page_size.bytes().0);
        match request.asked {
            size if size >= heap => HEAP.to_owned(),
            // Source: HotSpot's sizes of the tables that it does not log: one byte of table for 512 bytes of
            // heap, one or two bits of bitmap for each 8-byte word.
            size if size >= Bytes(heap.0 / 64).max(roundest + roundest) => "mark bitmap".to_owned(),
            _ => "gc table".to_owned(),
        }
    }
}

/// Adds a region, or merges it into one of the same name and page size.
fn add(regions: &mut Vec<RegionDemand>, region: RegionDemand) {
    let same = |other: &&mut RegionDemand| {
        other.name == region.name && other.page_size_bytes == region.page_size_bytes
    };
    match regions.iter_mut().find(same) {
        Some(known) => {
            known.bytes += region.bytes;
            known.bytes_at_start += region.bytes_at_start;
        }
        None => regions.push(region),
    }
}

pub const HEAP: &str = "heap";
/// All code heaps together.
pub const CODE_CACHE: &str = "code cache";

/// Region name of a logged name: `CodeHeap 'profiled nmethods'` is part of the code cache.
fn plain_name(logged: &str) -> String {
    let is_code = logged.starts_with("CodeHeap") || logged.starts_with("CodeCache");
    if is_code { CODE_CACHE.to_owned() } else { logged.to_lowercase() }
}
