//! The report of `check` as text and JSON.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
};

use hugewise_jvm::jdks::Jdk;
use hugewise_linux::{
    cgroup::{Group, Limit, Version},
    facts::Facts,
    hugepages::{
        contiguity::{AvailablePages, Contiguity},
        pools::Pool,
        thp::{Thp, ThpSize},
    },
    proc::limits::{Capabilities, Limits},
    reading::Reading,
    units::{Bytes, Pages},
};
use hugewise_measure::random_read::RandomRead;
use hugewise_plan::findings::Finding;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    output::{
        layout::Page,
        pool_use,
        terminal::{Terminal, plain},
    },
    random_read,
};

/// Largest number of reasons for unknown values in the text; JSON has all.
const MAX_REASONS: usize = 6;
/// Share of the free memory that is in no free list, 0 to 1, above which the amount is reported.
const UNLISTED_SHARE: f64 = 0.1;

/// Counts of a size in anonymous memory, and what they are.
const COUNTS: [(&str, &str); 4] = [
    ("nr_anon", "in anonymous memory"),
    ("anon_fault_alloc", "taken by page faults since boot"),
    ("anon_fault_fallback", "not obtained by page faults"),
    ("collapse_alloc", "made by khugepaged"),
];

/// Result of `hugewise check`, schema `hugewise.check/2`.
#[derive(Serialize, JsonSchema)]
pub struct CheckReport {
    pub schema: &'static str,
    pub facts: Facts,
    pub jdks: Vec<Jdk>,
    /// Time of a random read on THP, relative to base pages; absent if it was not measured since the machine
    /// started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_read: Option<Reading<RandomRead>>,
    pub findings: Vec<Finding>,
}

pub fn text(report: &CheckReport, terminal: &Terminal) -> anyhow::Result<String> {
    let mut page = Page::new(terminal);
    let facts = &report.facts;
    machine(&mut page, facts)?;
    pools(&mut page, facts)?;
    obtainable(&mut page, facts)?;
    transparent(&mut page, &facts.thp)?;
    huge_memory(&mut page, facts)?;
    cgroup(&mut page, facts)?;
    limits(&mut page, &facts.limits)?;
    counters(&mut page, facts)?;
    match &report.random_read {
        Some(Reading::Known(read)) => page.wrapped("GAIN", &random_read::sentence(read))?,
        Some(Reading::Unknown { unknown }) => page.wrapped("GAIN", &format!("not measured: {unknown}"))?,
        None => {}
    }
    jdks(&mut page, &report.jdks)?;
    unknown(&mut page, facts)?;
    for finding in &report.findings {
        page.finding(finding)?;
    }
    Ok(page.into_text())
}

fn known<T: Display>(reading: &Reading<T>) -> String {
    reading.known().map_or_else(|| "?".to_owned(), |value| plain(&value.to_string()))
}

fn yes_or_no(reading: &Reading<bool>) -> &'static str {
    match reading.known() {
        Some(true) => "yes",
        Some(false) => "no",
        None => "?",
    }
}

/// The value of a setting that not every kernel has.
fn of_kernel<T>(reading: &Reading<Option<T>>, words: impl Fn(&T) -> String) -> String {
    match reading.known() {
        Some(Some(value)) => words(value),
        Some(None) => "–".to_owned(),
        None => "?".to_owned(),
    }
}

fn machine(page: &mut Page, facts: &Facts) -> fmt::Result {
    let memory = &facts.meminfo;
    page.line("MACHINE", format!("Linux {} · base page {}", known(&facts.kernel), known(&facts.base_page)))?;
    page.line(
        "",
        format!(
            "memory {} · {} free · {} available · {} in pools",
            known(&memory.total),
            known(&memory.free),
            known(&memory.available),
            known(&memory.hugetlb),
        ),
    )?;
    let mut more = vec![
        format!("page tables {}", known(&memory.page_tables)),
        format!(
            "swap {} used",
            memory.swapped().map_or_else(|| "?".to_owned(), |swapped| swapped.to_string())
        ),
    ];
    if facts.overcommit.is_strict() {
        let (committed, limit) = (known(&memory.committed), known(&memory.commit_limit));
        more.push(format!("committed {committed} of {limit}, beyond which memory is refused"));
    }
    page.line("", more.join(" · "))
}

fn pools(page: &mut Page, facts: &Facts) -> fmt::Result {
    page.line(
        "POOLS",
        format!(
            "{:18}{:>9}{:>9}{:>10}{:>9}{:>11}{:>12}",
            "", "total", "free", "reserved", "surplus", "overcommit", "available"
        ),
    )?;
    let default_size = facts.meminfo.default_size.known();
    let pools: Vec<&Pool> = match facts.pools.known() {
        Some(pools) => pools.iter().collect(),
        None => facts.machine_pools().collect(),
    };
    if pools.is_empty() {
        return page.line("", "unknown");
    }
    // With a single node, its pools equal those of the machine.
    let many_nodes = pools.iter().any(|pool| pool.node.is_some_and(|node| node != 0));
    for pool in pools.iter().filter(|pool| pool.node.is_none() || many_nodes) {
        let name = match pool.node {
            Some(node) => format!("  on node {node}"),
            None if Some(&pool.page_size) == default_size => format!("{} (default)", pool.page_size),
            None => pool.page_size.to_string(),
        };
        let or_dash = |pages: Option<Pages>| pages.map_or_else(|| "-".to_owned(), |pages| pages.to_string());
        page.line(
            "",
            format!(
                "{name:18}{:>9}{:>9}{:>10}{:>9}{:>11}{:>12}",
                pool.total,
                pool.free,
                or_dash(pool.reserved.filter(|_| pool.node.is_none())),
                pool.surplus,
                or_dash(pool.overcommit),
                pool.available() * pool.page_size
            ),
        )?;
    }
    pool_use::lines(&facts.pool_use, facts.machine_pools()).iter().try_for_each(|line| page.line("", line))
}

fn obtainable(page: &mut Page, facts: &Facts) -> fmt::Result {
    let Contiguity { unlisted, sizes, .. } = &facts.contiguity;
    page.line("AVAILABLE", format!("{:18}{:>20}   {}", "", "without compaction", "after compaction"))?;
    for pages in sizes {
        page.line("", one_size(pages))?;
    }
    let share = |unlisted: &Bytes| facts.meminfo.free.known().and_then(|free| unlisted.share_of(*free));
    if let Some(unlisted) = unlisted.known().filter(|u| share(u).is_some_and(|s| s > UNLISTED_SHARE)) {
        page.wrapped(
            "",
            &format!(
                "{unlisted} of the free memory are in no free list (not yet initialised or accepted): \
                 more huge pages may be available than are counted here."
            ),
        )?;
    }
    Ok(())
}

fn one_size(pages: &AvailablePages) -> String {
    let size = pages.page_size;
    let amount = |reading: &Reading<Pages>| match reading.known() {
        Some(&pages) => format!("{pages} ({})", pages * size),
        None => "?".to_owned(),
    };
    let mut line =
        format!("{:18}{:>20}   at most {}", size.to_string(), amount(&pages.at_once), amount(&pages.at_most));
    if let Some(Reading::Known(blocks)) = &pages.blocks {
        line += &format!(", {} of them unknown", blocks.undecided);
    }
    line
}

fn transparent(page: &mut Page, thp: &Thp) -> fmt::Result {
    page.line(
        "THP",
        format!(
            "enabled {} · defrag {} · shmem_enabled {} · PMD size {}",
            known(&thp.enabled),
            known(&thp.defrag),
            known(&thp.shmem_enabled),
            known(&thp.pmd_size),
        ),
    )?;
    page.line(
        "",
        format!(
            "use_zero_page {} · shrink_underused {}",
            yes_or_no(&thp.use_zero_page),
            of_kernel(&thp.shrink_underused, |on| (if *on { "yes" } else { "no" }).to_owned()),
        ),
    )?;
    if let Some(sizes) = thp.sizes.known().filter(|sizes| !sizes.is_empty()) {
        page.wrapped("", &format!("anonymous by size: {}", by_setting(sizes, |size| &size.enabled)))?;
        page.wrapped("", &format!("shmem by size: {}", by_setting(sizes, |size| &size.shmem_enabled)))?;
    }
    khugepaged(page, thp)
}

/// Memory on THPs now, and the counts of each size of which there is or was any.
fn huge_memory(page: &mut Page, facts: &Facts) -> fmt::Result {
    let memory = &facts.meminfo;
    let bytes = |reading| of_kernel(reading, Bytes::to_string);
    page.line(
        "",
        format!(
            "in use: anonymous {} · shared {} · files {}",
            bytes(&memory.anonymous_huge),
            bytes(&memory.shared_huge),
            bytes(&memory.file_huge),
        ),
    )?;
    for size in facts.thp.sizes.known().into_iter().flatten() {
        let count = |name: &str| size.statistics.get(name).and_then(Reading::known).copied();
        let counts: Vec<String> = COUNTS
            .iter()
            .filter_map(|(name, words)| Some(format!("{} {words}", count(name).filter(|count| *count > 0)?)))
            .collect();
        if !counts.is_empty() {
            page.wrapped("", &format!("{}: {}", size.page_size, counts.join(" · ")))?;
        }
    }
    Ok(())
}

/// `inherit 2MiB · never 16KiB 32KiB`
fn by_setting(sizes: &[ThpSize], setting: impl Fn(&ThpSize) -> &Reading<Option<String>>) -> String {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for size in sizes {
        let word = match setting(size) {
            Reading::Known(None) => continue,
            Reading::Known(Some(word)) => plain(word),
            Reading::Unknown { .. } => "?".to_owned(),
        };
        groups.entry(word).or_default().push(size.page_size.to_string());
    }
    let groups: Vec<String> =
        groups.iter().map(|(word, sizes)| format!("{word} {}", sizes.join(" "))).collect();
    groups.join(" · ")
}

fn khugepaged(page: &mut Page, thp: &Thp) -> fmt::Result {
    let settings = &thp.khugepaged;
    page.line(
        "",
        format!(
            "khugepaged: scans {} pages every {} ms, retries after {} ms, defrag {}",
            known(&settings.pages_to_scan),
            known(&settings.scan_sleep_millisecs),
            known(&settings.alloc_sleep_millisecs),
            yes_or_no(&settings.defrag),
        ),
    )?;
    page.line(
        "",
        format!(
            "khugepaged: max_ptes_none {} · max_ptes_swap {} · max_ptes_shared {}",
            known(&settings.max_ptes_none),
            of_kernel(&settings.max_ptes_swap, u64::to_string),
            of_kernel(&settings.max_ptes_shared, u64::to_string),
        ),
    )
}

fn cgroup(page: &mut Page, facts: &Facts) -> fmt::Result {
    let cgroup = &facts.cgroup;
    page.wrapped("CGROUP", &format!("memory {}{}", limit(&cgroup.memory), of_group(&cgroup.memory_group)))?;
    let sizes: Vec<String> = cgroup
        .hugetlb
        .iter()
        .map(|h| match (limit(&h.touch), limit(&h.reserve)) {
            (touch, reserve) if touch == reserve => format!("{} {touch}", h.page_size),
            (touch, reserve) => format!("{} usage {touch}, reservations {reserve}", h.page_size),
        })
        .collect();
    if sizes.is_empty() {
        return Ok(());
    }
    page.wrapped("", &format!("hugetlb {}{}", sizes.join(" · "), of_group(&cgroup.hugetlb_group)))
}

fn limit(reading: &Reading<Option<Limit>>) -> String {
    match reading {
        Reading::Unknown { .. } => "?".to_owned(),
        Reading::Known(None) => "no limit".to_owned(),
        Reading::Known(Some(limit)) => {
            let used = limit.used.known().map_or_else(String::new, |used| format!(", {used} used"));
            format!("{}{used} [/{}]", limit.bytes, plain(&limit.file.to_string_lossy()))
        }
    }
}

fn of_group(group: &Reading<Group>) -> String {
    let Some(group) = group.known() else { return String::new() };
    let version = match group.version {
        Version::V1 => "v1",
        Version::V2 => "v2",
    };
    let above = if group.hidden_above { ", the limits of its ancestors are not visible" } else { "" };
    format!(" · {version} {}{above}", plain(&group.path))
}

fn limits(page: &mut Page, limits: &Limits) -> fmt::Result {
    let memlock = |reading: &Reading<Option<Bytes>>| match reading {
        Reading::Known(None) => "unlimited".to_owned(),
        Reading::Known(Some(bytes)) => bytes.to_string(),
        Reading::Unknown { .. } => "?".to_owned(),
    };
    // The kernel's value for "no limit" is slightly less than 2⁶⁴.
    let limited = |value: u64, text: String| if value > u64::MAX / 2 { "unlimited".to_owned() } else { text };
    let shmmax = limits.shmmax.clone().map(|bytes| limited(bytes.0, bytes.to_string()));
    let shmall = limits.shmall.clone().map(|pages| limited(pages.0, format!("{pages} pages")));
    page.line(
        "LIMITS",
        format!(
            "memlock {} (hard {}) · shmmax {} · shmall {}",
            memlock(&limits.memlock),
            memlock(&limits.memlock_hard),
            known(&shmmax),
            known(&shmall),
        ),
    )?;
    let can = |bit| yes_or_no(&limits.capabilities.clone().map(|set| set.has(bit))).to_owned();
    page.line(
        "",
        format!(
            "hugetlb_shm_group {} · caller: uid {}, gid {}, IPC_LOCK {}, SYS_ADMIN {}, PERFMON {}",
            known(&limits.hugetlb_shm_group),
            known(&limits.uid),
            known(&limits.gid),
            can(Capabilities::IPC_LOCK),
            can(Capabilities::SYS_ADMIN),
            can(Capabilities::PERFMON),
        ),
    )
}

fn counters(page: &mut Page, facts: &Facts) -> fmt::Result {
    let cores = match facts.pmu.cores.known() {
        None => "?".to_owned(),
        Some(cores) if cores.is_empty() => "no hardware counters: TLB misses cannot be counted".to_owned(),
        Some(cores) => format!("hardware counters: {}", plain(&cores.join(", "))),
    };
    page.line("TLB", format!("{cores} · perf_event_paranoid {}", known(&facts.pmu.paranoid)))
}

fn jdks(page: &mut Page, jdks: &[Jdk]) -> fmt::Result {
    if jdks.is_empty() {
        return page.line("JDKS", "none found");
    }
    for (n, jdk) in jdks.iter().enumerate() {
        let mut notes = String::new();
        if jdk.default {
            notes += " · java in PATH";
        }
        if jdk.has_compiler.known() == Some(&false) {
            notes += " · no compiler";
        }
        let line = format!(
            "{:12} {:18} {}{notes}",
            plain(&jdk.version),
            plain(jdk.implementor.as_deref().unwrap_or("-")),
            plain(&jdk.home.to_string_lossy())
        );
        page.line(if n == 0 { "JDKS" } else { "" }, line)?;
    }
    Ok(())
}

/// The reasons why values are unknown, shown as `?`.
fn unknown(page: &mut Page, facts: &Facts) -> anyhow::Result<()> {
    let mut reasons = Vec::new();
    collect_reasons(&serde_json::to_value(facts)?, &mut reasons);
    page.list("UNKNOWN", reasons.iter().take(MAX_REASONS).map(|reason| plain(reason)))?;
    if reasons.len() > MAX_REASONS {
        page.line("", format!("and {} more: see --json", reasons.len() - MAX_REASONS))?;
    }
    Ok(())
}

/// The reasons of all unknown values in `value`, each once.
fn collect_reasons(value: &serde_json::Value, reasons: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            if let Some(serde_json::Value::String(reason)) = fields.get("unknown") {
                if !reasons.contains(reason) {
                    reasons.push(reason.clone());
                }
            }
            fields.values().for_each(|field| collect_reasons(field, reasons));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| collect_reasons(item, reasons)),
        _ => {}
    }
}
