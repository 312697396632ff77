//! Findings about hugetlb pools: empty, unused, or not on every NUMA node.

use std::path::Path;

use hugewise_linux::{
    action::Action,
    facts::Facts,
    hugepages::pools::{NODES, POOLS, Pool, folder},
    proc::meminfo::MEMINFO,
    units::{Bytes, Pages},
};

use super::{Finding, Severity, evidence, file_of, write};

pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(pool_empty(facts));
    found.extend(facts.machine_pools().filter_map(|pool| pool_idle(facts, pool)));
    found.extend(facts.machine_pools().filter_map(|pool| pool_one_node(facts, pool)));
    found
}

/// Whether all pools are empty and may not grow on demand.
fn pool_empty(facts: &Facts) -> Option<Finding> {
    let pools: Vec<&Pool> = facts.machine_pools().collect();
    let default_size = *facts.meminfo.default_size.known()?;
    let nothing =
        |pool: &&Pool| pool.total == Pages(0) && pool.overcommit.is_none_or(|most| most == Pages(0));
    if pools.is_empty() || !pools.iter().all(nothing) {
        return None;
    }
    let seen = match facts.pools.known() {
        Some(_) => evidence("no pages in any pool, overcommit 0", POOLS),
        None => evidence("no pages in the default pool", MEMINFO),
    };
    let example = Bytes(1 << 30).pages_needed(default_size);
    Some(Finding {
        id: "pool-empty",
        severity: Severity::Info,
        evidence: vec![seen],
        detail: "No explicit huge pages are available: with -XX:+UseLargePages ZGC exits, and the other \
             collectors run on base pages."
                .to_owned(),
        actions: vec![
            Action::new(format!(
                "Fill the pool with as many pages as your program requests (hugewise plan -- java … prints the \
                 number); this command reserves {}",
                example * default_size
            ))
            .by(format!("sudo sysctl -w vm.nr_hugepages={example}")),
        ],
    })
}

/// Whether pages of a pool are neither in use nor reserved.
fn pool_idle(facts: &Facts, pool: &Pool) -> Option<Finding> {
    const RETURN: &str = "Return the unused pages to the kernel";
    let total = *facts.meminfo.total.known()?;
    let idle = pool.available() * pool.page_size;
    let share = idle.share_of(total)?;
    if pool.available() == Pages(0) {
        return None;
    }
    let available = facts.meminfo.available.known().and_then(|available| available.share_of(total));
    let scarce = available.is_some_and(|share| share < 0.1);
    let kept = pool.total.saturating_sub(pool.surplus).saturating_sub(pool.available());
    Some(Finding {
        id: "pool-idle",
        severity: if scarce { Severity::Warning } else { Severity::Info },
        evidence: vec![
            evidence(format!("{} free", pool.free), file_of(facts, pool, "free_hugepages")),
            evidence(
                format!("{} reserved", pool.reserved.unwrap_or_default()),
                file_of(facts, pool, "resv_hugepages"),
            ),
        ],
        detail: format!(
            "{idle} ({:.0} % of the memory) of the {} pool is unused. Only programs that request pages of \
             this pool can use this memory.",
            share * 100.0,
            pool.page_size
        ),
        actions: match facts.pools.known() {
            Some(_) => write(RETURN, kept, folder(pool.page_size, None).join("nr_hugepages")),
            None => vec![Action::new(RETURN).by(format!("sudo sysctl -w vm.nr_hugepages={kept}"))],
        },
    })
}

/// Whether only some NUMA nodes have pages of a pool.
fn pool_one_node(facts: &Facts, pool: &Pool) -> Option<Finding> {
    let of_size = |other: &&Pool| other.page_size == pool.page_size && other.node.is_some();
    let nodes: Vec<&Pool> = facts.pools.known()?.iter().filter(of_size).collect();
    let empty = nodes.iter().filter(|node| node.total == Pages(0));
    let without: Vec<String> = empty.filter_map(|node| Some(node.node?.to_string())).collect();
    if without.is_empty() || without.len() == nodes.len() {
        return None;
    }
    Some(Finding {
        id: "pool-not-on-every-node",
        severity: Severity::Info,
        evidence: vec![evidence(
            format!("no {} pages on node {}", pool.page_size, without.join(", ")),
            Path::new(NODES),
        )],
        detail: "Threads on these nodes get pages of another node, with a higher latency; a program bound \
                      to the memory of these nodes gets none."
            .to_owned(),
        actions: Vec::new(),
    })
}
