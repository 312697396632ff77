//! Makes a plan: parses the launch line, rehearses its `java`, and compares the demand with the machine.

use std::collections::BTreeSet;

use hugewise_databases::{mariadb::MariadbError, postgres::PostgresError};
use hugewise_jvm::{
    demand::Demand,
    flags::FinalFlags,
    launch::{Contradiction, EffectiveOptions, LaunchLine, contradictions},
    rehearsal::{self, DemandError, LaunchDemand, RehearsedStart},
};
use hugewise_linux::{
    facts::Facts,
    hugepages::{backing::Backing, page_sizes::PageSizes, pool_use::PoolFile},
    reading::Reading,
    rehearsal::SimulatedPools,
    units::{Bytes, PageSize, Pages},
};

use crate::{
    decide::{self, ObservedStart},
    plan::{OffHeap, Plan, PoolPlan, Verdict},
    target::{self, TargetSizes, TargetSource},
};

/// Size of a page table entry, on x86-64 and arm64.
const ENTRY: Bytes = Bytes(8);

/// Options of a plan.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// `None` is the backing that the line requests, or else `hugetlb`.
    pub backing: Option<Backing>,
    /// Number of such JVMs that run at the same time.
    pub instances: u32,
    /// Memory outside of the heap to put on huge pages.
    pub off_heap: Option<OffHeapRequest>,
    /// NUMA node of the pools; `None` if any.
    pub node: Option<u32>,
    /// How the target is known, which the facts describe.
    pub source: TargetSource,
}

impl Default for PlanRequest {
    /// One instance on this machine, on the backing that the line requests.
    fn default() -> PlanRequest {
        PlanRequest {
            backing: None,
            instances: 1,
            off_heap: None,
            node: None,
            source: TargetSource::ThisMachine,
        }
    }
}

/// Size of the memory outside of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffHeapRequest {
    Bytes(Bytes),
    /// The JVM's limit for direct buffers, `MaxDirectMemorySize`.
    Direct,
}

/// Plans for a launch line on the machine of these facts.
pub fn plan(
    command: &[String],
    line: &LaunchLine,
    wanted: &PlanRequest,
    facts: &Facts,
    sizes: &PageSizes,
) -> Result<Plan, DemandError> {
    let given = rehearsal::flags_of(line, sizes).map_err(|error| refusal(line, error))?;
    let elsewhere = TargetSizes::of(facts).filter(|_| wanted.source != TargetSource::ThisMachine);
    let (line, given) = match elsewhere {
        Some(elsewhere) => elsewhere.line(line, &given, sizes)?,
        None => (line.clone(), given),
    };
    let line = &line;
    let effective = line.effective_here(given.major())?;
    let asks = asks(&effective);
    let backing = wanted.backing.unwrap_or(asks.unwrap_or(Backing::Hugetlb(None)));
    if let Some(missing) = sizes.missing(backing) {
        return Err(DemandError::Impossible(missing));
    }
    let LaunchDemand { demand, options, set_aside } =
        rehearsal::launch_demand_with(line, &given, backing, sizes)?;
    let off_heap = wanted.off_heap.and_then(|wanted| {
        let (bytes, source) = match wanted {
            OffHeapRequest::Bytes(bytes) => (bytes, "--off-heap"),
            OffHeapRequest::Direct => (demand.direct_memory?, "MaxDirectMemorySize"),
        };
        let page_size =
            sizes.huge_page_of(if backing == Backing::Thp { backing } else { Backing::Hugetlb(None) })?;
        Some(OffHeap { bytes, page_size_bytes: page_size, source: source.to_owned() })
    });
    let target = target::of(&line.wrapper, wanted.source, facts, sizes);
    let bound = target.nodes.as_ref().filter(|nodes| nodes.len() == 1).and_then(BTreeSet::first);
    let node = checked_node(wanted.node.or(bound.copied()), facts).map_err(DemandError::Impossible)?;
    let pools = if backing.is_explicit() {
        decide::pools(&demand.regions, off_heap.as_ref(), wanted.instances, node, facts, sizes)
    } else {
        Vec::new()
    };

    let mut available = decide::available_pools(facts, target.nodes.as_ref());
    decide::subtract(&mut available, &taken_by_others(&pools, wanted.instances));
    let verdict = match asks.filter(|asks| asks.is_explicit() && wanted.source == TargetSource::Given) {
        Some(_) => decide::unknown_pools(),
        None => as_it_stands(line, &given, asks, &demand, available, facts, sizes)?,
    };

    let mut notes: Vec<String> = contradictions(&effective).iter().map(reported).collect();
    notes.extend(effective.notes.iter().cloned());
    notes.extend(limits(&pools, facts));
    let left_out = effective.left_out();
    if !left_out.is_empty() {
        notes.push(format!(
            "the JVM was queried without these options, which do not affect its memory layout, or could write a \
             file or load code: {}",
            left_out.join(" ")
        ));
    }
    if let Some(flag) = effective.heap_in_a_file() {
        notes.push(format!(
            "{flag} puts the heap into a file: its page sizes depend on that file system, and this plan counts it \
             as anonymous memory"
        ));
    }
    if backing.is_explicit() && !effective.fixes_heap() {
        notes.push(format!(
            "the heap of {} follows from the memory of {}: elsewhere it is another one, and a container's limit on memory \
             does not include pages of pools; fix it with -Xmx, or plan for the other place (--target)",
            demand.heap.max_bytes,
            match wanted.source {
                TargetSource::ThisMachine => "this machine or control group",
                TargetSource::Captured => "the captured machine or control group",
                TargetSource::Given => "the target",
            }
        ));
    }
    if !set_aside.is_empty() {
        notes.push(format!("the plan's options replace {}", set_aside.join(" ")));
    }
    if pools.iter().any(|pool| pool.pages_at_start < pool.pages_needed) {
        notes.push(
            "the heap of ZGC takes pages from the pool as it grows, and cannot grow beyond it: the pool is planned \
             for the largest heap. If other programs take its pages, threads stall, and then an OutOfMemoryError follows"
                .to_owned(),
        );
    }
    notes.extend(direct_buffers(&demand, &effective, backing, off_heap.as_ref(), facts));
    let settings = decide::settings(backing, &demand, facts);
    let start = decide::start_of_java(command, &options, backing);
    Ok(Plan {
        schema: "hugewise.plan/2".to_owned(),
        command: command.to_vec(),
        backing,
        actions: decide::actions(
            &pools,
            &settings,
            "use a smaller heap, or plan for --backing thp",
            start,
            facts,
        ),
        options,
        instances: wanted.instances,
        settings,
        memory: decide::memory(&pools, facts),
        target: Some(target),
        java: Some(demand.java),
        heap: Some(demand.heap),
        database: None,
        direct_memory_bytes: demand.direct_memory,
        default_page_size_bytes: sizes.default_hugetlb,
        regions: demand.regions,
        off_heap,
        pools,
        verdict,
        notes,
    })
}

/// Why a database server cannot be planned for.
#[derive(Debug, thiserror::Error)]
pub enum DatabasePlanError {
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    #[error(transparent)]
    Mariadb(#[from] MariadbError),
    /// The server or the machine does not support the request.
    #[error("{0}")]
    Impossible(String),
}

/// The default size of huge pages, for a database server that requests pages of pools by `mmap` only; or why it cannot
/// have what is wanted.
pub(crate) fn checked_request(
    server: &str,
    wanted: &PlanRequest,
    facts: &Facts,
    sizes: &PageSizes,
) -> Result<PageSize, DatabasePlanError> {
    let impossible = |why: String| Err(DatabasePlanError::Impossible(why));
    if wanted.off_heap.is_some() {
        return impossible(format!("--off-heap is for JVMs; the buffers of {server} are in the plan"));
    }
    if wanted.backing.is_some_and(|backing| !matches!(backing, Backing::Hugetlb(_))) {
        return impossible(format!(
            "{server} requests huge pages from pools by mmap only; plan for --backing hugetlb[:SIZE]"
        ));
    }
    checked_node(wanted.node, facts).map_err(DatabasePlanError::Impossible)?;
    sizes
        .default_hugetlb
        .ok_or_else(|| DatabasePlanError::Impossible("the default size of huge pages is unknown".to_owned()))
}

/// Whether a command begins with one of these programs, without a wrapper that may change the user.
pub(crate) fn is_direct(command: &[String], names: &[&str]) -> bool {
    command.first().is_some_and(|word| names.iter().any(|name| word.ends_with(name)))
}

/// Where the direct buffers are whose limit a launch line sets; `None` if it sets none, or the plan includes them.
fn direct_buffers(
    demand: &Demand,
    effective: &EffectiveOptions,
    backing: Backing,
    off_heap: Option<&OffHeap>,
    facts: &Facts,
) -> Option<String> {
    effective.value("MaxDirectMemorySize").filter(|_| backing.is_explicit() && off_heap.is_none())?;
    let most = demand.direct_memory?;
    let base = facts
        .base_page
        .known()
        .map_or_else(|| "base pages".to_owned(), |size| format!("base pages ({size})"));
    let pages = match facts.thp.pmd_enabled() {
        Some(("always", _)) => format!("{base} or THP (mode always)"),
        _ => base,
    };
    Some(format!(
        "direct buffers, at most {most}, take no pages of the pool: they are on {pages}, and do not fail when the pool is used up"
    ))
}

/// Size of page tables with so many entries.
pub(crate) fn page_tables(entries: Pages, sizes: &PageSizes) -> Bytes {
    let bytes = Bytes(entries.0.saturating_mul(ENTRY.0));
    bytes.align_up(sizes.base).unwrap_or(bytes)
}

/// A NUMA node of the pools, or why the machine has no such node.
pub(crate) fn checked_node(node: Option<u32>, facts: &Facts) -> Result<Option<u32>, String> {
    let nodes: Vec<u32> = facts.pools.known().into_iter().flatten().filter_map(|pool| pool.node).collect();
    match node.filter(|node| !nodes.is_empty() && !nodes.contains(node)) {
        Some(node) => Err(format!("this machine has no NUMA node {node} with memory")),
        None => Ok(node),
    }
}

/// Notes on limits of control groups that could not be read, on the memory that programs may commit, and on files that
/// hold pages of the pools.
pub(crate) fn limits(pools: &[PoolPlan], facts: &Facts) -> Vec<String> {
    let mut notes = Vec::new();
    // Without this reading a limit may still prevent the page faults.
    let limits = facts.cgroup.hugetlb.iter();
    let limits = limits.filter(|limits| pools.iter().any(|pool| pool.page_size_bytes == limits.page_size));
    let mut readings = limits.flat_map(|limits| [&limits.touch, &limits.reserve]);
    let memory = facts.cgroup.memory_group.known();
    if memory.is_some_and(|group| group.hidden_above) && facts.cgroup.memory.known() == Some(&None) {
        notes.push(
            "limits on memory of control groups above this container are not visible: one of them may be smaller than \
             what this program takes"
                .to_owned(),
        );
    }
    if let Some(reason) = readings.find_map(Reading::reason) {
        notes.push(format!("whether a control group limits the pool pages is unknown: {reason}"));
    }
    notes.extend(pools.iter().filter_map(|pool| {
        facts.overcommit.words_after(&facts.meminfo, pool.pages_to_add, pool.page_size_bytes)
    }));
    let is_planned = |file: &&PoolFile| pools.iter().any(|pool| pool.page_size_bytes == file.page_size_bytes);
    let left: Bytes = facts.pool_use.left_files().filter(is_planned).map(|file| file.bytes).sum();
    if left > Bytes::ZERO {
        notes.push(format!(
            "files on hugetlbfs that no process maps hold {left} of the pools: hugewise check names them"
        ));
    }
    let limit = facts.cgroup.memory.known().and_then(Option::as_ref);
    if let Some(reason) = facts.cgroup.memory.reason().or(limit.and_then(|limit| limit.left.reason())) {
        notes.push(format!("how much memory the control group allows is unknown: {reason}"));
    }
    notes
}

/// Pages that the other instances take from each pool at their largest heaps.
pub(crate) fn taken_by_others(pools: &[PoolPlan], instances: u32) -> Vec<(PageSize, Pages)> {
    let instances = u64::from(instances.max(1));
    let others = |pool: &PoolPlan| Pages(pool.pages_needed.0 / instances * (instances - 1));
    pools.iter().map(|pool| (pool.page_size_bytes, others(pool))).collect()
}

/// Verdict on the unchanged line, with the pages of `pools`, which are those that the other instances leave.
fn as_it_stands(
    line: &LaunchLine,
    given: &FinalFlags,
    asks: Option<Backing>,
    planned: &Demand,
    mut pools: SimulatedPools,
    facts: &Facts,
    sizes: &PageSizes,
) -> Result<Verdict, DemandError> {
    if matches!(asks, Some(Backing::Shm(_))) && facts.limits.may_use_huge_segments() == Some(false) {
        pools.values_mut().for_each(|pages| *pages = Pages(0));
    }
    let asks_explicit = asks.filter(|asks| asks.is_explicit());
    let expected = match asks_explicit {
        Some(asks) => RehearsedStart::of(line, given, sizes, &SimulatedPools::new())?.regions(asks, sizes),
        None => planned.regions.clone(),
    };
    let now = RehearsedStart::of(line, given, sizes, &pools)?;
    let seen = ObservedStart {
        program: "the JVM",
        asks_explicit: asks_explicit.is_some(),
        asks_thp: asks == Some(Backing::Thp),
        started: now.rehearsal.status.success(),
        got: &now.regions(asks.unwrap_or(Backing::Base), sizes),
        messages: now.messages(),
    };
    Ok(decide::verdict(seen, &expected, facts, sizes))
}

/// Replaces the JVM's error by the contradiction of options that causes it, if there is one.
fn refusal(line: &LaunchLine, error: DemandError) -> DemandError {
    let contradictions = line.effective_here(None).map(|effective| contradictions(&effective));
    match contradictions.unwrap_or_default().iter().find(|contradiction| contradiction.refused) {
        Some(refused) => DemandError::Exits { java: line.java.clone(), detail: reported(refused) },
        None => error,
    }
}

fn reported(contradiction: &Contradiction) -> String {
    format!("{}: {}", contradiction.options.join(" and "), contradiction.outcome)
}

/// The backing that the options request; `None` if they request none.
fn asks(effective: &EffectiveOptions) -> Option<Backing> {
    let is = |flag| effective.switch(flag).map(|(on, _)| on);
    if is("UseLargePages") == Some(false) {
        return None;
    }
    if is("UseTransparentHugePages") == Some(true) {
        return Some(Backing::Thp);
    }
    let size = effective.value("LargePageSizeInBytes").and_then(|(size, _)| size.parse().ok());
    match (is("UseLargePages"), is("UseHugeTLBFS"), is("UseSHM")) {
        (_, Some(true), _) => Some(Backing::Hugetlb(size)),
        (_, _, Some(true)) => Some(Backing::Shm(size)),
        (Some(true), ..) => Some(Backing::Hugetlb(size)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PoolAvailability;

    #[test]
    fn the_other_instances_take_their_pages_first() -> Result<(), Box<dyn std::error::Error>> {
        let size: PageSize = "2m".parse()?;
        let pool = PoolPlan {
            page_size_bytes: size,
            node: None,
            pages_needed: Pages(30),
            pages_at_start: Pages(30),
            pages_available: Pages(0),
            pages_in_pool: Pages(0),
            pages_to_add: Pages(30),
            obtainable: PoolAvailability::Yes,
            why: String::new(),
        };
        let pools = [pool];
        assert_eq!(taken_by_others(&pools, 1), [(size, Pages(0))]);
        assert_eq!(taken_by_others(&pools, 3), [(size, Pages(20))]);
        Ok(())
    }
}
