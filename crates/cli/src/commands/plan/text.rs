//! A plan as text: demand, pools, predicted result without changes, actions.

use std::fmt;

use hugewise_linux::units::{Bytes, Pages};
use hugewise_plan::{
    plan::{
        Database, MemoryShare, Plan, PoolAvailability, PoolPlan, RegionOutcome, SettingPlan, StartOutcome,
    },
    target::{Target, TargetSource},
};

use crate::output::{
    layout::Page,
    terminal::{Terminal, plain},
};

/// Name of the server whose setting is `large_pages`.
const MARIADB: &str = "MariaDB";

pub fn text(plan: &Plan, terminal: &Terminal) -> Result<String, fmt::Error> {
    let mut page = Page::new(terminal);
    page.wrapped("COMMAND", &plain(&plan.command.join(" ")))?;
    if let Some(program) = program(plan) {
        page.line("", plain(&program))?;
    }
    if let Some(target) = &plan.target {
        page.wrapped("TARGET", &target_words(target))?;
    }
    regions(&mut page, plan)?;
    for (n, pool) in plan.pools.iter().enumerate() {
        self::pool(&mut page, if n == 0 { "POOL" } else { "" }, pool, plan, terminal)?;
    }
    if let Some(database) = &plan.database {
        page_tables(&mut page, database)?;
    }
    if let Some(memory) = plan.memory.as_ref().filter(|_| !plan.lacks_memory()) {
        self::memory(&mut page, memory)?;
    }
    let setting = |change: &SettingPlan| {
        format!("{}: {} → {} ({})", change.setting, change.from, change.to, change.why)
    };
    page.list("SETTINGS", plan.settings.iter().map(setting))?;
    verdict(&mut page, plan, terminal)?;
    page.list("NOTES", plan.notes.iter().map(|note| plain(note)))?;
    page.actions(&plan.actions)?;
    Ok(page.into_text())
}

/// Version and settings of the program; `None` for a plan without them.
fn program(plan: &Plan) -> Option<String> {
    if let Some(Database { name, version, huge_pages, max_connections, .. }) = &plan.database {
        let setting = if name == MARIADB { "large_pages" } else { "huge_pages" };
        return Some(format!(
            "{name} {version} · {setting}={huge_pages} · max_connections={max_connections}"
        ));
    }
    let (java, heap) = (plan.java.as_ref()?, plan.heap.as_ref()?);
    let heap = match heap.initial_bytes == heap.max_bytes {
        true => heap.max_bytes.to_string(),
        false => format!("{} to {}", heap.initial_bytes, heap.max_bytes),
    };
    Some(format!("JDK {} · {} · heap {heap}", java.version, java.collector))
}

/// What the plan holds for.
fn target_words(target: &Target) -> String {
    let source = match target.source {
        TargetSource::ThisMachine => "this machine",
        TargetSource::Captured => "the captured machine",
        TargetSource::Given => "as given, its pools and settings are unknown",
    };
    format!("{source}: {}", target.values())
}

fn page_tables(page: &mut Page, database: &Database) -> fmt::Result {
    let most = |of_one: Bytes| {
        if database.processes == 1 {
            return of_one.to_string();
        }
        let all = Bytes(of_one.0.saturating_mul(database.max_connections.into()));
        format!("{of_one} for each connection, {all} for all {}", database.max_connections)
    };
    let (base, huge) = (database.page_tables_on_base_bytes, database.page_tables_on_huge_bytes);
    page.wrapped("PAGE TABLES", &format!("on base pages at most {}", most(base)))?;
    page.wrapped("", &format!("on huge pages at most {}", most(huge)))
}

fn memory(page: &mut Page, memory: &MemoryShare) -> fmt::Result {
    let (taken, remaining) = (memory.taken_bytes, memory.remaining_bytes);
    let mut heading = "MEMORY";
    if taken > Bytes::ZERO {
        let said = format!(
            "the added pages take {taken} from other programs: of {} available now, {remaining} remain",
            taken + remaining
        );
        page.wrapped(heading, &said)?;
        heading = "";
    }
    match memory.available_bytes.known() {
        Some(available) if *available < taken + remaining => {
            page.wrapped(heading, &format!("outside of the pools, the control group allows {available} more"))
        }
        _ => Ok(()),
    }
}

fn regions(page: &mut Page, plan: &Plan) -> fmt::Result {
    let mut row = |heading, [name, size, at_start, at_most, pages]: [&str; 5]| {
        page.line(heading, format!("{name:32}{size:>10}{at_start:>12}{at_most:>12}{pages:>9}"))
    };
    let needed = |bytes: Bytes, size| bytes.pages_needed(size).to_string();
    row("REGIONS", ["", "page size", "at start", "at most", "pages"])?;
    for region in &plan.regions {
        let (size, bytes) = (region.page_size_bytes, region.bytes);
        let is_huge = plan.pools.iter().any(|pool| pool.page_size_bytes == size);
        let pages = if is_huge { needed(bytes, size) } else { "-".to_owned() };
        let (name, at_start) = (plain(&region.name), region.bytes_at_start.to_string());
        row("", [&name, &size.to_string(), &at_start, &bytes.to_string(), &pages])?;
    }
    if let Some(off_heap) = &plan.off_heap {
        let (size, bytes) = (off_heap.page_size_bytes, off_heap.bytes);
        let name = format!("off-heap ({})", off_heap.source);
        row("", [&name, &size.to_string(), "", &bytes.to_string(), &needed(bytes, size)])?;
    } else if let Some(direct) = plan.direct_memory_bytes {
        row("", ["direct buffers, not in the plan", "-", "", &direct.to_string(), "-"])?;
    }
    Ok(())
}

fn pool(page: &mut Page, heading: &str, pool: &PoolPlan, plan: &Plan, terminal: &Terminal) -> fmt::Result {
    let of_node = pool.node.map(|node| format!(" on node {node}")).unwrap_or_default();
    let for_all = match plan.instances {
        0 | 1 => String::new(),
        instances => format!(" for {instances} instances"),
    };
    let at_start = match pool.pages_at_start == pool.pages_needed {
        true => String::new(),
        // A database server has all its memory once it has started.
        false if plan.database.is_some() => format!(" (at least {})", pool.pages_at_start),
        false => format!(" ({} at the start)", pool.pages_at_start),
    };
    let (noun, verb) = if pool.pages_needed == Pages(1) { ("page", "is") } else { ("pages", "are") };
    let said = format!(
        "{} {noun} of {}{of_node} {verb} needed{for_all}{at_start}: {}",
        pool.pages_needed,
        pool.page_size_bytes,
        pool.pages_needed * pool.page_size_bytes,
    );
    if plan.target.as_ref().is_some_and(|target| target.source == TargetSource::Given) {
        return page.wrapped(heading, &said);
    }
    let said = format!(
        "{said}; the pool has {}, of which {} are available",
        pool.pages_in_pool, pool.pages_available
    );
    page.wrapped(heading, &said)?;
    if pool.pages_to_add == Pages(0) {
        return page.line("", terminal.good("pages to add: none"));
    }
    let availability = match pool.obtainable {
        PoolAvailability::Yes => "available now",
        PoolAvailability::NotEnoughMemory => "not enough memory",
        PoolAvailability::NotContiguous => "not contiguous",
        PoolAvailability::Unknown => "unknown whether they are available",
    };
    page.wrapped("", &format!("pages to add: {}, {availability}: {}", pool.pages_to_add, plain(&pool.why)))
}

fn verdict(page: &mut Page, plan: &Plan, terminal: &Terminal) -> fmt::Result {
    let verdict = &plan.verdict;
    let mut summary = plain(&verdict.summary) + ".";
    if let Some(first) = summary.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let word = match verdict.outcome {
        StartOutcome::GetsHugePages => terminal.good("gets huge pages"),
        StartOutcome::FallsBack => terminal.warn("falls back"),
        StartOutcome::Exits => terminal.bad("exits"),
        StartOutcome::DiesOfSigbus => terminal.bad("killed by SIGBUS"),
        StartOutcome::DiesOutOfMemory => terminal.bad("killed if it takes all its memory"),
        StartOutcome::DoesNotAsk => terminal.warn("requests no huge pages"),
        StartOutcome::DecidedAtTouch => terminal.warn("decided at page faults"),
        StartOutcome::Unknown => terminal.warn("unknown"),
    };
    let is_there = plan.target.as_ref().is_some_and(|target| target.source != TargetSource::ThisMachine);
    // Wider than the column of headings.
    page.line(if is_there { "AS STARTED THERE  " } else { "AS STARTED NOW  " }, word)?;
    page.wrapped("", &summary)?;
    if verdict.outcome == StartOutcome::FallsBack {
        let shown = |region: &RegionOutcome| {
            let (name, size) = (plain(&region.name), region.page_size_bytes);
            match region.huge_bytes {
                bytes if bytes > Bytes::ZERO && bytes < region.bytes => {
                    format!("{bytes} of {name} on {size}")
                }
                _ => format!("{name} on {size}"),
            }
        };
        page.wrapped("", &verdict.regions.iter().map(shown).collect::<Vec<_>>().join(" · "))?;
    }
    let program = plan.database.as_ref().map_or("java", |database| &database.name);
    page.list(
        "",
        verdict.messages.iter().map(|text| terminal.dim(&format!("{}: {}", plain(program), plain(text)))),
    )
}
