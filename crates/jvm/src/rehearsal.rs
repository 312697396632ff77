//! Demand of a launch line, from a rehearsal of its `java`.

use std::{env, io, time::Duration};

use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    rehearsal::{self, Means, Pretended, Rehearsal, Request},
    units::{Bytes, PageSize},
};

use crate::{
    demand::{Demand, HeapSizes, Java, RegionDemand},
    flags::{self, AskError, FinalFlags},
    large_page_flags,
    launch::{LaunchError, LaunchLine},
    page_size_log::{self, Logged},
};

/// Time limit of one start; 1–2 s are usual on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of messages kept of one start.
const MESSAGES: usize = 6;

/// Why the demand of a launch line is unknown.
#[derive(Debug, thiserror::Error)]
pub enum DemandError {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The JVM does not support the backing.
    #[error("{0}")]
    Impossible(String),
    #[error("{java} could not be started under ptrace and seccomp, which the rehearsal needs: {source}")]
    Rehearse { java: String, source: io::Error },
    /// It exits at its start, even with sufficient pools.
    #[error("{java} does not start with these options: {said}")]
    Exits { java: String, said: String },
}

/// Demand of a launch line, and the options that select the backing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub demand: Demand,
    /// Options that select the backing.
    pub options: Vec<String>,
    /// Options of the line about large pages that `options` replaces.
    pub set_aside: Vec<String>,
}

/// Determines the demand of a launch line on a backing, independent of the machine's pools.
pub fn ask(line: &LaunchLine, backing: Backing, sizes: &PageSizes) -> Result<Asked, DemandError> {
    let flags = flags_of(line, sizes)?;
    ask_with(line, &flags, backing, sizes)
}

/// Final flags of a launch line's JVM with sufficient pools; with too small ones ZGC would not start.
pub fn flags_of(line: &LaunchLine, sizes: &PageSizes) -> Result<FinalFlags, DemandError> {
    flags::judged(line, &|options| {
        let rehearsal = rehearse(line, options, sizes, &Pretended::new())?;
        let succeeded = rehearsal.status.success();
        Ok(flags::understand(line.java.clone(), succeeded, &rehearsal.stdout, &rehearsal.stderr)?)
    })
}

fn rehearse(
    line: &LaunchLine,
    options: &[String],
    sizes: &PageSizes,
    pools: &Pretended,
) -> Result<Rehearsal, DemandError> {
    let java = || line.java.clone();
    let question = flags::question(line, options)?;
    rehearsal::rehearse(question.command, sizes, pools, PATIENCE).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => AskError::Start { java: java(), source }.into(),
        io::ErrorKind::TimedOut => AskError::TimedOut { java: java(), limit: PATIENCE }.into(),
        _ => DemandError::Rehearse { java: java(), source },
    })
}

/// Like [`ask`], with the JVM's flags already known.
pub fn ask_with(
    line: &LaunchLine,
    flags: &FinalFlags,
    backing: Backing,
    sizes: &PageSizes,
) -> Result<Asked, DemandError> {
    let options = large_page_flags::options(flags, backing).map_err(DemandError::Impossible)?;
    let (line, mut set_aside) = line.with_page_flags(&options);
    // Some variables take effect after the command line.
    let (variables, aside) = line.variables_without_page_flags(&|name| env::var(name).ok());
    set_aside.extend(aside);
    let line = line.with_environment(&variables);
    let performance = Performance::of(&line, flags, sizes, &Pretended::new())?;
    if !performance.rehearsal.status.success() {
        let mut said = performance.messages();
        said.push(performance.rehearsal.status.to_string());
        return Err(DemandError::Exits { java: line.java, said: said.join(" / ") });
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
            collector: flags.collector().unwrap_or("unknown").to_owned(),
        },
        heap,
        regions: performance.regions(backing, sizes),
        direct_memory: flags
            .bytes("MaxDirectMemorySize")
            .map(|most| if most.0 > 0 { most } else { heap.max_bytes }),
    };
    Ok(Asked { demand, options, set_aside })
}

/// Start of a JVM with simulated pools.
#[derive(Debug)]
pub struct Performance {
    /// Its requests and its exit status.
    pub rehearsal: Rehearsal,
    /// Its final flags with the simulated pools.
    pub flags: FinalFlags,
    log: Vec<Logged>,
}

impl Performance {
    /// Starts the `java` of a line with pools of the sizes in `pools`; `flags` stand in if it does not start.
    pub fn of(
        line: &LaunchLine,
        flags: &FinalFlags,
        sizes: &PageSizes,
        pools: &Pretended,
    ) -> Result<Performance, DemandError> {
        let logs = flags.major().is_some_and(|major| major >= 9);
        let options: Vec<String> = logs.then(|| page_size_log::OPTION.to_owned()).into_iter().collect();
        let rehearsal = rehearse(line, &options, sizes, pools)?;
        let succeeded = rehearsal.status.success();
        // A JVM that does not start prints no flags.
        let flags = flags::understand(line.java.clone(), succeeded, &rehearsal.stdout, &rehearsal.stderr)
            .unwrap_or_else(|_| flags.clone());
        let log = page_size_log::parse(&rehearsal.stdout);
        Ok(Performance { rehearsal, flags, log })
    }

    /// Warnings and errors that the JVM printed, each once.
    #[must_use]
    pub fn messages(&self) -> Vec<String> {
        let lines = self.rehearsal.stdout.lines().chain(self.rehearsal.stderr.lines());
        let telling = lines.filter(|line| {
            let inside = ["[warning]", "[error]", " warning: "];
            let first = ["Error", "Unrecognized", "Conflicting"];
            inside.iter().any(|sign| line.contains(sign)) || first.iter().any(|sign| line.starts_with(sign))
        });
        let mut messages: Vec<String> = Vec::new();
        for line in telling.map(str::trim) {
            // Messages that differ in the address only are one message.
            let kind = |line: &str| line.split(" req_addr").next().unwrap_or_default().to_owned();
            if !messages.iter().any(|known| kind(known) == kind(line)) {
                messages.push(line.to_owned());
            }
        }
        messages.truncate(MESSAGES);
        messages
    }

    /// Regions once the JVM has started: first those with pages from pools, in the order of the requests,
    /// then those of its log.
    #[must_use]
    pub fn regions(&self, backing: Backing, sizes: &PageSizes) -> Vec<RegionDemand> {
        let mut regions: Vec<RegionDemand> = Vec::new();
        for request in self
            .rehearsal
            .requests
            .iter()
            .filter(|request| request.held > Bytes::ZERO || request.limit.is_some())
        {
            let region = RegionDemand {
                name: self.name(request),
                page_size_bytes: request.page_size,
                bytes_at_start: request.held,
                bytes: self.largest(request),
            };
            add(&mut regions, region);
        }
        for logged in self.log.iter().filter(|logged| !self.is_on_requested_pages(logged)) {
            let region = RegionDemand {
                name: plain_name(&logged.name),
                page_size_bytes: self.page_size_of(logged, backing, sizes),
                bytes_at_start: logged.size,
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

    /// Size to which a request may grow. ZGC sizes its heap file for the maximum heap; before JDK 13 the file
    /// grows with the heap.
    fn largest(&self, request: &Request) -> Bytes {
        let max_heap = self.flags.bytes("MaxHeapSize").filter(|_| request.means == Means::File);
        request.held.max(request.limit.unwrap_or_default()).max(max_heap.unwrap_or_default())
    }

    /// Page size of a logged region. Without a granted request, a hugetlb page size in the log is only the
    /// JVM's assumption.
    fn page_size_of(&self, logged: &Logged, backing: Backing, sizes: &PageSizes) -> PageSize {
        if backing == Backing::Thp && logged.page_size != sizes.base {
            return sizes.thp.unwrap_or(logged.page_size);
        }
        sizes.base
    }

    fn is_on_requested_pages(&self, logged: &Logged) -> bool {
        self.rehearsal.requests.iter().any(|request| covers(request, logged.base))
    }

    /// Name of a requested region: that of the log, if it has one at this address.
    fn name(&self, request: &Request) -> String {
        if request.means == Means::File {
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

fn covers(request: &Request, address: u64) -> bool {
    request.held > Bytes::ZERO
        && request
            .start
            .is_some_and(|start| (start..start.saturating_add(request.asked.0)).contains(&address))
}

/// Region name of a logged name: `CodeHeap 'profiled nmethods'` is part of the code cache.
fn plain_name(logged: &str) -> String {
    if logged.starts_with("CodeHeap") || logged.starts_with("CodeCache") {
        return CODE_CACHE.to_owned();
    }
    logged.to_lowercase()
}
