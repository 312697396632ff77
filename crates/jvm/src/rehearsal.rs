//! A launch line's demand, from a rehearsal of its `java`.

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

/// How long a JVM may take to start and end; one on a loaded machine takes a second or two.
const PATIENCE: Duration = Duration::from_secs(30);
/// As many lines of what a JVM says are worth repeating.
const MESSAGES: usize = 6;

/// Why the demand of a launch line is not known.
#[derive(Debug, thiserror::Error)]
pub enum DemandError {
    /// The JVM did not tell its flags.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The line could not be understood.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// This JVM cannot have this backing.
    #[error("{0}")]
    Impossible(String),
    /// It could not be rehearsed.
    #[error("{java} could not be rehearsed (it takes ptrace of one's own children and seccomp): {source}")]
    Rehearse {
        /// The program.
        java: String,
        /// What the system answered.
        source: io::Error,
    },
    /// It does not start with these options, however large the pools.
    #[error("{java} does not start with these options: {said}")]
    Exits {
        /// The program.
        java: String,
        /// What it says.
        said: String,
    },
}

/// The demand of a line, and what it takes to give it the backing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The demand.
    pub demand: Demand,
    /// The options that give the JVM the backing.
    pub options: Vec<String>,
    /// The options of the line about large pages that they replace.
    pub set_aside: Vec<String>,
}

/// Asks what a launch line demands on a backing, whatever the machine's pools hold.
pub fn ask(line: &LaunchLine, backing: Backing, sizes: &PageSizes) -> Result<Asked, DemandError> {
    let flags = flags_of(line, sizes)?;
    ask_with(line, &flags, backing, sizes)
}

/// The flags of a line's JVM where no pool is short: with a short one, ZGC would not start.
pub fn flags_of(line: &LaunchLine, sizes: &PageSizes) -> Result<FinalFlags, DemandError> {
    let rehearsal = rehearse(line, &[], sizes, &Pretended::new())?;
    let succeeded = rehearsal.status.success();
    Ok(flags::understand(line.java.clone(), succeeded, &rehearsal.stdout, &rehearsal.stderr)?)
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

/// The same where the JVM's flags are known.
pub fn ask_with(
    line: &LaunchLine,
    flags: &FinalFlags,
    backing: Backing,
    sizes: &PageSizes,
) -> Result<Asked, DemandError> {
    let options = large_page_flags::options(flags, backing).map_err(DemandError::Impossible)?;
    let (line, mut set_aside) = line.with_page_flags(&options);
    // Some variables count after the command line.
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

/// A JVM's start with pretended pools.
#[derive(Debug)]
pub struct Performance {
    /// What it asked for and how it ended.
    pub rehearsal: Rehearsal,
    /// Its final flags, with the pools pretended.
    pub flags: FinalFlags,
    log: Vec<Logged>,
}

impl Performance {
    /// Starts the `java` of a line with pools that hold no more than `pools` says; `flags` are those that it
    /// told before.
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
        // One that does not start has told nothing new.
        let flags = flags::understand(line.java.clone(), succeeded, &rehearsal.stdout, &rehearsal.stderr)
            .unwrap_or_else(|_| flags.clone());
        let log = page_size_log::parse(&rehearsal.stdout);
        Ok(Performance { rehearsal, flags, log })
    }

    /// What the JVM said that is worth repeating: its warnings and errors, once each.
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
            // The same message about another address is the same message.
            let kind = |line: &str| line.split(" req_addr").next().unwrap_or_default().to_owned();
            if !messages.iter().any(|known| kind(known) == kind(line)) {
                messages.push(line.to_owned());
            }
        }
        messages.truncate(MESSAGES);
        messages
    }

    /// What it held when it had started, by region: first what it took from pools, in that order,
    /// then what its log says of other regions.
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
        // ZGC does not log its heap, and before JDK 9 there is no such log.
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

    /// What a request may grow to. ZGC sizes the file of its heap for the largest heap, but before JDK 13
    /// only as it grows.
    fn largest(&self, request: &Request) -> Bytes {
        let max_heap = self.flags.bytes("MaxHeapSize").filter(|_| request.means == Means::File);
        request.held.max(request.limit.unwrap_or_default()).max(max_heap.unwrap_or_default())
    }

    /// Without a request that was granted, an explicit page size in the log is only the JVM's belief.
    fn page_size_of(&self, logged: &Logged, backing: Backing, sizes: &PageSizes) -> PageSize {
        if backing == Backing::Thp && logged.page_size != sizes.base {
            return sizes.thp.unwrap_or(logged.page_size);
        }
        sizes.base
    }

    fn is_on_requested_pages(&self, logged: &Logged) -> bool {
        self.rehearsal.requests.iter().any(|request| covers(request, logged.base))
    }

    /// The name of what was requested: the log's where it has one for this place.
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
            // Source: HotSpot's sizes of what it does not log: a byte of table for 512 of heap, two or one
            // bits of bitmap for each 8-byte word.
            size if size >= Bytes(heap.0 / 64).max(roundest + roundest) => "mark bitmap".to_owned(),
            _ => "gc table".to_owned(),
        }
    }
}

/// Adds a region, or makes it part of one of the same name on the same pages.
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

/// The name of the heap.
pub const HEAP: &str = "heap";
/// The name of the code cache, all its parts together.
pub const CODE_CACHE: &str = "code cache";

fn covers(request: &Request, address: u64) -> bool {
    request.held > Bytes::ZERO
        && request
            .start
            .is_some_and(|start| (start..start.saturating_add(request.asked.0)).contains(&address))
}

/// The JVM's name in plain words: `CodeHeap 'profiled nmethods'` is part of the code cache.
fn plain_name(logged: &str) -> String {
    if logged.starts_with("CodeHeap") || logged.starts_with("CodeCache") {
        return CODE_CACHE.to_owned();
    }
    logged.to_lowercase()
}
