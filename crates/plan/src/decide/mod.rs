//! Derives a plan from a demand and the facts of a machine, without any reading of its own.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use hugewise_jvm::{
    collector::Collector,
    demand::{self, Demand, RegionDemand},
};
use hugewise_linux::{
    action::Action,
    cgroup::CgroupLimits,
    facts::Facts,
    hugepages::{backing::Backing, page_sizes::PageSizes, pools::Pool},
    rehearsal::SimulatedPools,
    settings::Setting,
    shell,
    units::{Bytes, PageSize, Pages},
};

use crate::{
    plan::{
        MemoryShare, OffHeap, PoolAvailability, PoolPlan, RegionOutcome, SettingPlan, StartOutcome, Verdict,
    },
    pool_availability::{self, Policy},
};

/// Pools that `instances` programs with these regions need together.
pub fn pools(
    regions: &[RegionDemand],
    off_heap: Option<&OffHeap>,
    instances: u32,
    node: Option<u32>,
    facts: &Facts,
    sizes: &PageSizes,
) -> Vec<PoolPlan> {
    let wanted = sizes.hugetlb.iter().filter_map(|&size| {
        let (at_start, most) = demand::pages(regions, size);
        let off_heap = off_heap.filter(|off_heap| off_heap.page_size_bytes == size);
        let off_heap = off_heap.map_or(Pages(0), |off_heap| off_heap.bytes.pages_needed(size));
        let all = |pages: Pages| Pages((pages + off_heap).0.saturating_mul(instances.into()));
        let (at_start, needed) = (all(at_start), all(most));
        (needed.0 > 0).then(|| pool(size, at_start, needed, node, facts))
    });
    wanted.collect()
}

fn pool(size: PageSize, at_start: Pages, needed: Pages, node: Option<u32>, facts: &Facts) -> PoolPlan {
    let of_node = |pool: &&Pool| pool.page_size == size && pool.node == node;
    let found = facts.pools.known().and_then(|pools| pools.iter().find(of_node));
    let found = found.or_else(|| facts.machine_pools().find(|pool| pool.page_size == size));
    let available = found.map_or(Pages(0), Pool::available);
    let add = needed.saturating_sub(available);
    let (obtainable, why) = obtainable(size, add, facts);
    PoolPlan {
        page_size_bytes: size,
        node,
        pages_needed: needed,
        pages_at_start: at_start,
        pages_available: available,
        pages_in_pool: found.map_or(Pages(0), |pool| pool.total.saturating_sub(pool.surplus)),
        pages_to_add: add,
        obtainable,
        why,
    }
}

/// Changes that give a program its huge pages, in their order: of the pools and settings, then its start by
/// `start`. `smaller` is a change of the program that lets it take less memory.
pub fn actions(
    pools: &[PoolPlan],
    settings: &[SettingPlan],
    smaller: &str,
    start: Action,
    facts: &Facts,
) -> Vec<Action> {
    if pools.iter().any(|pool| pool.obtainable == PoolAvailability::NotEnoughMemory) {
        return vec![Action::new(format!("Free memory, or {smaller}"))];
    }
    let change = change_machine(pools, settings, facts);
    let limits = pools.iter().flat_map(|pool| raised_limits(pool, facts));
    limits.chain(change).chain([start]).collect()
}

/// Higher limits of control groups, without which a pool's pages cannot be used.
fn raised_limits(pool: &PoolPlan, facts: &Facts) -> Vec<Action> {
    let size = pool.page_size_bytes;
    let of_size = facts.cgroup.hugetlb.iter().filter(|limits| limits.page_size == size);
    let limits = of_size.flat_map(|limits| [&limits.touch, &limits.reserve]);
    let raised = limits.filter_map(|limit| {
        let limit = limit.known()?.as_ref()?;
        let short = pool.pages_needed.saturating_sub(pool_availability::left(limit, size)?);
        let bytes = limit.bytes + short * size;
        (short > Pages(0)).then(|| match limit.is_visible() {
            true => Action::new(format!("Raise the limit on pages of {size} of the control group to {bytes}"))
                .by(format!("echo {} | sudo tee /{}", bytes.0, limit.file.display()))
                .verified_by("hugewise check"),
            false => Action::new(format!(
                "On the host: raise the limit on pages of {size} of this container to {bytes} (Kubernetes: request \
                 and limit hugepages-{}; systemd and others: the hugetlb files of its control group)",
                size.to_string().trim_end_matches('B')
            )),
        })
    });
    raised.collect()
}

/// The start of a JVM with `options`, which select `backing`.
pub fn start_of_java(command: &[String], options: &[String], backing: Backing) -> Action {
    let run = format!("hugewise run --backing {backing} -- {}", shell::line(command));
    Action::new(format!("Start java with {}", options.join(" "))).by(run).verified_by("hugewise inspect PID")
}

/// The change of pools and settings that a plan needs; `None` if it needs none.
fn change_machine(pools: &[PoolPlan], settings: &[SettingPlan], facts: &Facts) -> Option<Action> {
    let adds = pools.iter().filter(|pool| pool.pages_to_add.0 > 0).map(|pool| {
        let node = pool.node.map(|node| format!("@{node}")).unwrap_or_default();
        format!(" --pool {}{node}=+{}", pool.page_size_bytes, pool.pages_to_add)
    });
    let (adds, changes): (Vec<String>, Vec<String>) =
        (adds.collect(), settings.iter().filter_map(apply_option).collect());
    let change = match (adds.is_empty(), changes.is_empty()) {
        (true, true) => return None,
        (false, true) => "Grow the pools",
        (true, false) => "Change the settings",
        (false, false) => "Grow the pools, and change the settings",
    };
    let change = match facts.limits.host_only() {
        Some(why) => format!("On the host: {} ({why})", change.to_lowercase()),
        None => change.to_owned(),
    };
    Some(Action::new(change).by(format!("sudo hugewise apply{}", [adds, changes].concat().concat())))
}

/// The option of `hugewise apply` that makes a change; `None` for a setting that no plan changes.
fn apply_option(change: &SettingPlan) -> Option<String> {
    let name = match change.setting {
        Setting::ThpEnabled { page_size: None } => "thp-enabled",
        Setting::ShmemEnabled { page_size: None } => "shmem-enabled",
        Setting::ShmMax => "shmmax",
        Setting::ShmAll => "shmall",
        Setting::ShmGroup => "shm-group",
        _ => return None,
    };
    Some(format!(" --{name} {}", change.to))
}

/// Whether `add` pages can be added now, with the reason.
fn obtainable(size: PageSize, add: Pages, facts: &Facts) -> (PoolAvailability, String) {
    if add.0 == 0 {
        return (PoolAvailability::Yes, "the pool has enough pages".to_owned());
    }
    let bytes = add * size;
    if let Some(total) = facts.meminfo.total.known().filter(|total| bytes > **total) {
        let why = format!("the pages need {bytes}, and the machine has {total}: plan for less memory");
        return (PoolAvailability::NotEnoughMemory, why);
    }
    let Some(available) = facts.meminfo.available.known().copied() else {
        let reason = facts.meminfo.available.reason().unwrap_or("the available memory is unknown");
        return (PoolAvailability::Unknown, reason.to_owned());
    };
    if bytes > available {
        let why = format!(
            "the pages need {bytes}, and {available} are available: stop a program, or plan for less memory"
        );
        return (PoolAvailability::NotEnoughMemory, why);
    }
    let Some(known) = facts.contiguity.sizes.iter().find(|sizes| sizes.page_size == size) else {
        return (PoolAvailability::Unknown, format!("the number of free blocks of {size} is unknown"));
    };
    match (known.at_once.known(), known.at_once.reason()) {
        (Some(&at_once), _) if at_once >= add => {
            (PoolAvailability::Yes, format!("{} blocks of {size} are free", at_once.0))
        }
        (Some(&at_once), _) => (
            PoolAvailability::NotContiguous,
            format!(
                "{} blocks of {size} are free, and {} are needed: 'hugewise apply' compacts memory while it \
                 grows the pool; the rest can be reserved at boot (plan --format kernel)",
                at_once.0, add.0
            ),
        ),
        (None, reason) => (PoolAvailability::Unknown, reason.unwrap_or_default().to_owned()),
    }
}

/// Memory that the added pages take; `None` if the machine's memory is unknown.
pub fn memory(pools: &[PoolPlan], facts: &Facts) -> Option<MemoryShare> {
    let taken_bytes: Bytes = pools.iter().map(|pool| pool.pages_to_add * pool.page_size_bytes).sum();
    let machine = &facts.meminfo.available;
    Some(MemoryShare {
        total_bytes: *facts.meminfo.total.known()?,
        available_bytes: facts.cgroup.available_memory(machine),
        taken_bytes,
        remaining_bytes: machine.known()?.saturating_sub(taken_bytes),
    })
}

/// Why the kernel kills a program that touches `needed` bytes, `what`, on base pages or THP; `None` if the control
/// group allows as much, or if that is unknown.
pub fn beyond_memory_limit(cgroup: &CgroupLimits, what: &str, needed: Bytes) -> Option<String> {
    let limit = cgroup.memory.known()?.as_ref()?;
    let left = limit.left.known()?;
    (needed > *left).then(|| {
        format!(
            "the control group allows {left} more (limit {}, /{}), and {what} may take {needed}: when it does, the \
             kernel kills the program",
            limit.bytes,
            limit.file.display()
        )
    })
}

/// Settings that must change before the backing is available.
pub fn settings(backing: Backing, demand: &Demand, facts: &Facts) -> Vec<SettingPlan> {
    match backing {
        Backing::Thp => thp_settings(&demand.java.collector, facts),
        Backing::Shm(_) => shm_settings(demand, facts),
        Backing::Base | Backing::Hugetlb(_) => Vec::new(),
    }
}

fn thp_settings(collector: &str, facts: &Facts) -> Vec<SettingPlan> {
    let mut settings = Vec::new();
    if let Some(now) = facts.thp.enabled.known().filter(|now| *now == "never") {
        let why = "transparent huge pages are disabled for all programs";
        settings.push(change(Setting::ThpEnabled { page_size: None }, now, "madvise", why));
    }
    let refused =
        |now: &&String| ["never", "deny"].contains(&now.as_str()) && collector == Collector::Z.name();
    if let Some(now) = facts.thp.shmem_enabled.known().filter(refused) {
        let why = "the heap of ZGC is shared memory";
        settings.push(change(Setting::ShmemEnabled { page_size: None }, now, "advise", why));
    }
    settings
}

fn shm_settings(demand: &Demand, facts: &Facts) -> Vec<SettingPlan> {
    let mut settings = Vec::new();
    let largest = demand.regions.iter().map(|region| region.bytes).max().unwrap_or_default();
    if let Some(now) = facts.limits.shmmax.known().filter(|most| **most < largest) {
        settings.push(change(Setting::ShmMax, now.0, largest.0, "one segment contains the whole heap"));
    }
    let all: Bytes = demand.regions.iter().map(|region| region.bytes).sum();
    if let (Some(base), Some(now)) = (facts.base_page.known(), facts.limits.shmall.known()) {
        let needed = all.pages_needed(*base);
        if *now < needed {
            let why = "the segments together contain all regions";
            settings.push(change(Setting::ShmAll, now, needed, why));
        }
    }
    if facts.limits.may_use_huge_segments() == Some(false) {
        if let (Some(now), Some(gid)) = (facts.limits.hugetlb_shm_group.known(), facts.limits.gid.known()) {
            let why = "without CAP_IPC_LOCK only this group may create segments on huge pages";
            settings.push(change(Setting::ShmGroup, now, gid, why));
        }
    }
    settings
}

fn change(setting: Setting, from: impl ToString, to: impl ToString, why: &str) -> SettingPlan {
    SettingPlan { setting, from: from.to_string(), to: to.to_string(), why: why.to_owned() }
}

/// Pages that a new process, whose memory is bound to these nodes, could take from each pool now.
///
/// Source: `allowed_mems_nr` of the kernel, which counts the free pages of these nodes for each reservation.
pub fn available_pools(facts: &Facts, bound: Option<&BTreeSet<u32>>) -> SimulatedPools {
    let pages = |pool: &Pool| {
        let of_machine = pool_availability::available(pool, &facts.cgroup.hugetlb, Policy::AtMapping).pages;
        let Some((nodes, pools)) = bound.zip(facts.pools.known()) else { return of_machine };
        let is_bound =
            |of: &&Pool| of.page_size == pool.page_size && of.node.is_some_and(|node| nodes.contains(&node));
        of_machine.min(pools.iter().filter(is_bound).map(|of| of.free).sum())
    };
    facts.machine_pools().map(|pool| (pool.page_size, pages(pool))).collect()
}

/// Takes pages from pools.
pub fn subtract(pools: &mut SimulatedPools, taken: &[(PageSize, Pages)]) {
    for (size, taken) in taken {
        if let Some(left) = pools.get_mut(size) {
            *left = left.saturating_sub(*taken);
        }
    }
}

/// Observed start of an unchanged launch line.
#[derive(Clone, Debug)]
pub struct ObservedStart<'a> {
    /// Name of the program in a sentence: `the JVM`.
    pub program: &'a str,
    /// Whether the line requests explicit huge pages, by the JVM's final flags or the server's settings.
    pub asks_explicit: bool,
    /// Whether it requests transparent huge pages.
    pub asks_thp: bool,
    pub started: bool,
    /// Regions with pages from pools, and regions that request transparent huge pages.
    pub got: &'a [RegionDemand],
    /// Warnings and errors that the JVM printed.
    pub messages: Vec<String>,
}

/// The verdict on a target whose pools are unknown.
pub fn unknown_pools() -> Verdict {
    Verdict {
        outcome: StartOutcome::Unknown,
        summary: "the pools of the target are not known here; a plan on the target, or of files that 'hugewise check \
                  --capture' copied there, predicts the result"
            .to_owned(),
        regions: Vec::new(),
        messages: Vec::new(),
    }
}

/// Predicts the result of starting the line now; `demand` are its regions with sufficient pools.
pub fn verdict(
    seen: ObservedStart<'_>,
    demand: &[RegionDemand],
    facts: &Facts,
    sizes: &PageSizes,
) -> Verdict {
    let outcome_of = |region: &RegionDemand| {
        let same = seen.got.iter().filter(|got| got.name == region.name && got.page_size_bytes > sizes.base);
        let largest = same.clone().map(|got| got.page_size_bytes).max();
        let got: Bytes = same.map(|got| got.bytes_at_start).sum();
        RegionOutcome {
            name: region.name.clone(),
            bytes: region.bytes_at_start,
            page_size_bytes: largest.unwrap_or(sizes.base),
            huge_bytes: got.min(region.bytes_at_start),
        }
    };
    let program = seen.program;
    let regions: Vec<RegionOutcome> = demand.iter().map(outcome_of).collect();
    let short = |(asked, got): &(&RegionDemand, &RegionOutcome)| {
        asked.page_size_bytes > sizes.base
            && (got.page_size_bytes < asked.page_size_bytes || got.huge_bytes < asked.bytes_at_start)
    };
    let lost: Vec<&str> =
        demand.iter().zip(&regions).filter(short).map(|(_, region)| region.name.as_str()).collect();
    let sigbus = facts.cgroup.hugetlb.iter().find_map(|limits| {
        let size = limits.page_size;
        let regions = seen.got.iter().filter(|region| region.page_size_bytes == size);
        let held: Pages = regions.map(|region| region.bytes.pages_needed(size)).sum();
        let limit = limits.touch.known()?.as_ref()?;
        let left = pool_availability::left(limit, size)?;
        (held > left).then(|| (size, held, left, limit.file.clone()))
    });
    let counts_pools = facts.cgroup.memory_counts_hugetlb.known() == Some(&true);
    let in_pools: Bytes = match seen.asks_explicit && !counts_pools {
        true => seen.got.iter().map(|region| region.bytes).sum(),
        false => Bytes::ZERO,
    };
    let most: Bytes = demand.iter().map(|region| region.bytes).sum();
    let beyond_limit = beyond_memory_limit(&facts.cgroup, "its memory", most.saturating_sub(in_pools));
    let thp = facts.thp.enabled.known().map(String::as_str);
    let (outcome, summary) = match (seen.started, seen.asks_explicit, seen.asks_thp) {
        (false, ..) => (StartOutcome::Exits, format!("{program} does not start")),
        (true, ..) if beyond_limit.is_some() && sigbus.is_none() => {
            (StartOutcome::DiesOutOfMemory, format!("{program} starts; {}", beyond_limit.unwrap_or_default()))
        }
        (true, true, _) => match (sigbus, lost.is_empty()) {
            (Some((size, held, left, file)), _) => (
                StartOutcome::DiesOfSigbus,
                format!(
                    "{program} starts, and SIGBUS kills it when it touches more than {} of its {} pages of \
                     {size}: the limit in /{}",
                    left.0,
                    held.0,
                    file.display()
                ),
            ),
            (None, true) => {
                (StartOutcome::GetsHugePages, "every region gets the huge pages that it requests".to_owned())
            }
            (None, false) => (
                StartOutcome::FallsBack,
                format!("{program} starts; entirely or partly on smaller pages: {}", lost.join(", ")),
            ),
        },
        (true, false, true) if thp == Some("never") => (
            StartOutcome::FallsBack,
            "transparent huge pages are disabled: all memory is on base pages, without an error".to_owned(),
        ),
        (true, false, true) => (
            StartOutcome::DecidedAtTouch,
            "the kernel decides at the first touch of each page whether it is huge".to_owned(),
        ),
        (true, false, false) if thp == Some("always") => (
            StartOutcome::DecidedAtTouch,
            "the command line requests no huge pages, and the kernel gives transparent ones to all programs \
             (enabled=always)"
                .to_owned(),
        ),
        (true, false, false) => (
            StartOutcome::DoesNotAsk,
            "the command line requests no huge pages: all memory is on base pages".to_owned(),
        ),
    };
    Verdict { outcome, summary, regions, messages: seen.messages }
}
