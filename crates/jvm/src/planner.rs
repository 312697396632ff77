//! Making a plan: the line is understood, its `java` rehearsed, the machine read, and the rest decided.

use std::{env, fs};

use hugewise_kernel::{
    backing::Backing,
    facts::Facts,
    page_sizes::PageSizes,
    rehearsal::Pretended,
    units::{Bytes, Pages},
};

use crate::{
    launch::{Contradiction, Effective, LaunchLine, contradictions},
    plan::{OffHeap, Plan},
    planning::{self, AsItStands},
    rehearsed::{self, Asked, DemandError, Performance},
};

/// What is planned.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The backing; where nothing is named, what the line asks for, or `hugetlb`.
    pub backing: Option<Backing>,
    /// How many such JVMs run at once.
    pub instances: u32,
    /// Memory outside of the heap that is to be on huge pages.
    pub off_heap: Option<OffHeapWanted>,
    /// The NUMA node of the pools.
    pub node: Option<u32>,
}

/// Memory outside of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffHeapWanted {
    /// So much.
    Bytes(Bytes),
    /// What the JVM allows its direct buffers.
    Direct,
}

/// Plans for a launch line on the machine of these facts.
pub fn plan(
    command: &[String],
    line: &LaunchLine,
    wanted: &Wanted,
    facts: &Facts,
    sizes: &PageSizes,
) -> Result<Plan, DemandError> {
    let given = rehearsed::flags_of(line, sizes).map_err(|error| refusal(line, error))?;
    let effective =
        line.effective(given.major(), &|name| env::var(name).ok(), &|file| fs::read_to_string(file))?;
    let asks = asks(&effective);
    let backing = wanted.backing.unwrap_or(asks.unwrap_or(Backing::Hugetlb(None)));
    if let Some(missing) = sizes.missing(backing) {
        return Err(DemandError::Impossible(missing));
    }
    let Asked { demand, options, set_aside, .. } = rehearsed::ask_with(line, &given, backing, sizes)?;
    let off_heap = wanted.off_heap.and_then(|wanted| {
        let (bytes, source) = match wanted {
            OffHeapWanted::Bytes(bytes) => (bytes, "--off-heap"),
            OffHeapWanted::Direct => (demand.direct_memory?, "MaxDirectMemorySize"),
        };
        let page_size =
            sizes.huge_page_of(if backing == Backing::Thp { backing } else { Backing::Hugetlb(None) })?;
        Some(OffHeap { bytes, page_size_bytes: page_size, source: source.to_owned() })
    });
    let node = wanted.node.or_else(|| bound_node(&line.wrapper));
    let nodes: Vec<u32> = facts.pools.known().into_iter().flatten().filter_map(|pool| pool.node).collect();
    if let Some(node) = node.filter(|node| !nodes.is_empty() && !nodes.contains(node)) {
        return Err(DemandError::Impossible(format!("this machine has no NUMA node {node} with memory")));
    }
    let takes_from_pools = backing.is_explicit();
    let pools = if takes_from_pools {
        planning::pools(&demand, off_heap.as_ref(), wanted.instances, node, facts, sizes)
    } else {
        Vec::new()
    };

    // As it was given, with the pools as they are when the others of its kind have started.
    let mut pretended = planning::obtainable_pools(facts);
    for pool in &pools {
        let others = pool.pages_needed.0 / u64::from(wanted.instances.max(1))
            * u64::from(wanted.instances.saturating_sub(1));
        if let Some(left) = pretended.get_mut(&pool.page_size_bytes) {
            *left = left.saturating_sub(Pages(others));
        }
    }
    if matches!(asks, Some(Backing::Shm(_))) && planning::may_use_huge_segments(facts) == Some(false) {
        pretended.values_mut().for_each(|pages| *pages = Pages(0));
    }
    let asks_explicit = asks.is_some_and(Backing::is_explicit);
    let now = Performance::of(line, &given, sizes, &pretended)?;
    let expected = match asks {
        Some(asks) if asks_explicit => {
            let regions = Performance::of(line, &given, sizes, &Pretended::new())?.regions(asks, sizes);
            crate::demand::Demand { regions, ..demand.clone() }
        }
        _ => demand.clone(),
    };
    let seen = AsItStands {
        asks_explicit,
        asks_thp: asks == Some(Backing::Thp),
        started: now.rehearsal.status.success(),
        got: &now.regions(asks.unwrap_or(Backing::Base), sizes),
        messages: now.messages(),
    };
    let verdict = planning::verdict(seen, &expected, facts, sizes);

    let mut notes: Vec<String> = contradictions(&effective).iter().map(told).collect();
    notes.extend(effective.notes.iter().cloned());
    if !set_aside.is_empty() {
        notes.push(format!("the plan's options take the place of {}", set_aside.join(" ")));
    }
    if pools.iter().any(|pool| pool.pages_at_start < pool.pages_needed) {
        notes.push(
            "the heap of ZGC takes pages from the pool as it grows, and cannot grow past it: the pool is planned \
             for the largest heap"
                .to_owned(),
        );
    }
    Ok(Plan {
        schema: "hugewise.plan/1".to_owned(),
        command: command.to_vec(),
        backing,
        options,
        instances: wanted.instances,
        settings: planning::settings(backing, &demand, facts),
        memory: planning::memory(&pools, facts),
        java: demand.java,
        heap: demand.heap,
        direct_memory_bytes: demand.direct_memory,
        default_page_size_bytes: sizes.default_hugetlb,
        regions: demand.regions,
        off_heap,
        pools,
        verdict,
        notes,
    })
}

/// Options that contradict each other are a better answer than the JVM's own.
fn refusal(line: &LaunchLine, error: DemandError) -> DemandError {
    let effective = line.effective(None, &|name| env::var(name).ok(), &|file| fs::read_to_string(file));
    let refused =
        effective.ok().and_then(|effective| contradictions(&effective).into_iter().find(|c| c.refused));
    match refused {
        Some(contradiction) => DemandError::Exits { java: line.java.clone(), said: told(&contradiction) },
        None => error,
    }
}

fn told(contradiction: &Contradiction) -> String {
    format!("{}: {}", contradiction.options.join(" and "), contradiction.outcome)
}

/// The backing that options ask for; nothing if they ask for none.
fn asks(effective: &Effective) -> Option<Backing> {
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

/// The one node that `numactl --membind` in a wrapper allows.
fn bound_node(wrapper: &[String]) -> Option<u32> {
    let at = wrapper.iter().position(|word| word.rsplit('/').next() == Some("numactl"))?;
    let words = &wrapper[at + 1..];
    let value = words.iter().enumerate().find_map(|(n, word)| match word.as_str() {
        "-m" | "--membind" => words.get(n + 1).cloned(),
        word => word.strip_prefix("--membind=").or_else(|| word.strip_prefix("-m")).map(str::to_owned),
    });
    value?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_bound_by_membind_alone() {
        let node = |line: &str| bound_node(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(node("env A=1 /usr/bin/numactl -N 1 -m 0"), Some(0));
        assert_eq!(node("numactl --membind=1 taskset -c 3"), Some(1));
        assert_eq!(node("numactl -m1"), Some(1));
        assert_eq!(node("numactl --membind 0,1"), None);
        assert_eq!(node("numactl --cpunodebind=1"), None);
        assert_eq!(node("taskset -m 1"), None);
    }
}
