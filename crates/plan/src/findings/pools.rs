//! Findings about hugetlb pools: empty, unused, or not on every NUMA node.

use std::{collections::BTreeSet, path::Path};

use hugewise_linux::{
    action::Action,
    facts::Facts,
    hugepages::pools::{NODES, POOLS, Pool, folder},
    proc::meminfo::MEMINFO,
    shell,
    units::{Bytes, Pages},
};

use super::{Finding, Severity, evidence, file_of, write};

/// Largest number of files that are named.
const MAX_FILES: usize = 16;
/// Smallest share of the memory, 0 to 1, whose idle pages are a problem while other memory is scarce.
const MIN_PROBLEM_SHARE: f64 = 0.05;
/// Smallest share of the memory, 0 to 1, whose idle pages are a problem by themselves.
const MIN_UNREASONABLE_SHARE: f64 = 0.5;

pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(pool_empty(facts));
    found.extend(facts.machine_pools().filter_map(|pool| pool_idle(facts, pool)));
    found.extend(facts.machine_pools().filter_map(|pool| pool_one_node(facts, pool)));
    found.extend(left_files(facts));
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
        detail: "No explicit huge pages are available: a JVM with -XX:+UseLargePages runs on base pages, with a \
             warning that some JDKs do not print."
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
    let swapped = facts.meminfo.swapped().filter(|swapped| *swapped > Bytes(1 << 30));
    let scarce = available.is_some_and(|share| share < 0.1) || swapped.is_some();
    let severity = match (scarce, share) {
        (true, MIN_PROBLEM_SHARE..) | (false, MIN_UNREASONABLE_SHARE..) => Severity::Problem,
        (true, _) => Severity::Warning,
        (false, _) => Severity::Info,
    };
    let swapped = swapped
        .map_or_else(String::new, |swapped| format!(" Meanwhile {swapped} of other memory are swapped out."));
    let kept = pool.total.saturating_sub(pool.surplus).saturating_sub(pool.available());
    let start = (severity == Severity::Problem).then(|| {
        Action::new(
            "Start the program for which the pool was made on it: one that was started while the pool was too small, or \
             without the option for it, stays on base pages",
        )
        .by("hugewise plan --pid PID")
    });
    let back = match facts.pools.known() {
        Some(_) => write(RETURN, kept, folder(pool.page_size, None).join("nr_hugepages")),
        None => vec![Action::new(RETURN).by(format!("sudo sysctl -w vm.nr_hugepages={kept}"))],
    };
    Some(Finding {
        id: "pool-idle",
        severity,
        evidence: vec![
            evidence(format!("{} free", pool.free), file_of(facts, pool, "free_hugepages")),
            evidence(
                format!("{} reserved", pool.reserved.unwrap_or_default()),
                file_of(facts, pool, "resv_hugepages"),
            ),
        ],
        detail: format!(
            "{idle} ({:.0} % of the memory) of the {} pool is unused. Only programs that request pages of \
             this pool can use this memory.{swapped}",
            share * 100.0,
            pool.page_size
        ),
        actions: start.into_iter().chain(back).collect(),
    })
}

/// Whether files on hugetlbfs hold pages although no process maps them.
fn left_files(facts: &Facts) -> Option<Finding> {
    let files: Vec<_> = facts.pool_use.left_files().collect();
    let first = files.first()?;
    let pages: u64 = files.iter().map(|file| file.bytes.whole_pages(file.page_size_bytes).0).sum();
    let bytes: Bytes = files.iter().map(|file| file.bytes).sum();
    let folders: BTreeSet<&Path> = files.iter().filter_map(|file| file.path.parent()).collect();
    let folders: Vec<String> = folders.into_iter().map(|folder| folder.display().to_string()).collect();
    let names: Vec<&str> = files.iter().take(MAX_FILES).filter_map(|file| file.path.to_str()).collect();
    let more = files.len().saturating_sub(MAX_FILES);
    let unread = match facts.pool_use.unread {
        0 => String::new(),
        many => format!(" The mappings of {many} processes could not be read."),
    };
    let words: Vec<String> = names.iter().map(|name| shell::word(name)).collect();
    Some(Finding {
        id: "pool-files",
        severity: Severity::Warning,
        evidence: files.iter().take(MAX_FILES).map(|file| evidence(file.bytes, &file.path)).collect(),
        detail: format!(
            "{pages} pages ({bytes}) are in use by files of {}, which no process maps: {} of {}{}. A program that ended \
             without deleting its files leaves them; the pages stay in use until the files are deleted.{unread}",
            folders.join(", "),
            names.first().unwrap_or(&"?"),
            first.bytes,
            match files.len() {
                1 => String::new(),
                many if more > 0 => format!(", and {} more files, of which {more} are not listed", many - 1),
                many => format!(", and {} more files", many - 1),
            }
        ),
        actions: vec![
            Action::new("Delete the files, if no process has them open and no program needs their content")
                .by(format!("sudo fuser -v {0}; sudo rm -i {0}", words.join(" ")))
                .verified_by("hugewise check"),
        ],
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
