//! A plan as text: demand, pools, predicted result without changes, actions.

use std::fmt;

use hugewise_linux::units::{Bytes, Pages};
use hugewise_plan::plan::{Plan, PoolAvailability, PoolPlan, RegionOutcome, StartOutcome};

use crate::output::{
    layout::Page,
    terminal::{Terminal, plain},
};

pub fn text(plan: &Plan, terminal: &Terminal) -> Result<String, fmt::Error> {
    let mut page = Page::new(terminal);
    page.wrapped("COMMAND", &plain(&plan.command.join(" ")))?;
    let heap = match plan.heap.initial_bytes == plan.heap.max_bytes {
        true => plan.heap.max_bytes.to_string(),
        false => format!("{} to {}", plan.heap.initial_bytes, plan.heap.max_bytes),
    };
    page.line("", plain(&format!("JDK {} · {} · heap {heap}", plan.java.version, plan.java.collector)))?;
    regions(&mut page, plan)?;
    for (n, pool) in plan.pools.iter().enumerate() {
        self::pool(&mut page, if n == 0 { "POOL" } else { "" }, pool, plan.instances, terminal)?;
    }
    if let Some(memory) =
        plan.memory.as_ref().filter(|memory| memory.taken_bytes > Bytes::ZERO && !plan.lacks_memory())
    {
        page.wrapped(
            "MEMORY",
            &format!(
                "the added pages take {} from other programs: of {} available now, {} remain",
                memory.taken_bytes, memory.available_bytes, memory.remaining_bytes
            ),
        )?;
    }
    for (n, setting) in plan.settings.iter().enumerate() {
        let heading = if n == 0 { "SETTINGS" } else { "" };
        page.wrapped(
            heading,
            &format!("{}: {} → {} ({})", setting.setting, setting.from, setting.to, setting.why),
        )?;
    }
    verdict(&mut page, plan, terminal)?;
    for (n, note) in plan.notes.iter().enumerate() {
        page.wrapped(if n == 0 { "NOTES" } else { "" }, &plain(note))?;
    }
    page.actions(&plan.actions)?;
    Ok(page.into_text())
}

fn regions(page: &mut Page, plan: &Plan) -> fmt::Result {
    page.line(
        "REGIONS",
        format!("{:32}{:>10}{:>12}{:>12}{:>9}", "", "page size", "at start", "at most", "pages"),
    )?;
    for region in &plan.regions {
        let is_huge = plan.pools.iter().any(|pool| pool.page_size_bytes == region.page_size_bytes);
        let pages = if is_huge {
            region.bytes.pages_needed(region.page_size_bytes).to_string()
        } else {
            "-".to_owned()
        };
        page.line(
            "",
            format!(
                "{:32}{:>10}{:>12}{:>12}{pages:>9}",
                plain(&region.name),
                region.page_size_bytes.to_string(),
                region.bytes_at_start.to_string(),
                region.bytes.to_string(),
            ),
        )?;
    }
    if let Some(off_heap) = &plan.off_heap {
        page.line(
            "",
            format!(
                "{:32}{:>10}{:>12}{:>12}{:>9}",
                format!("off-heap ({})", off_heap.source),
                off_heap.page_size_bytes.to_string(),
                "",
                off_heap.bytes.to_string(),
                off_heap.bytes.pages_needed(off_heap.page_size_bytes).to_string(),
            ),
        )?;
    } else if let Some(direct) = plan.direct_memory_bytes {
        let name = "direct buffers, off-heap";
        page.line("", format!("{name:32}{:>10}{:>12}{:>12}{:>9}", "no flag", "", direct.to_string(), "-"))?;
    }
    Ok(())
}

fn pool(page: &mut Page, heading: &str, pool: &PoolPlan, instances: u32, terminal: &Terminal) -> fmt::Result {
    let of_node = pool.node.map(|node| format!(" on node {node}")).unwrap_or_default();
    let for_all = if instances > 1 { format!(" for {instances} JVMs") } else { String::new() };
    let at_start = match pool.pages_at_start == pool.pages_needed {
        true => String::new(),
        false => format!(" ({} at the start)", pool.pages_at_start),
    };
    page.wrapped(
        heading,
        &format!(
            "{} {} of {}{of_node} {} needed{for_all}{at_start}: {}; the pool has {}, of which {} are available",
            pool.pages_needed,
            if pool.pages_needed == Pages(1) { "page" } else { "pages" },
            pool.page_size_bytes,
            is_or_are(pool.pages_needed),
            pool.pages_needed * pool.page_size_bytes,
            pool.pages_in_pool,
            pool.pages_available,
        ),
    )?;
    let why = plain(&pool.why);
    let to_add = format!("pages to add: {}", pool.pages_to_add);
    match (pool.pages_to_add, pool.obtainable) {
        (Pages(0), _) => page.line("", terminal.good("pages to add: none")),
        (_, PoolAvailability::Yes) => page.wrapped("", &format!("{to_add}, available now: {why}")),
        (_, PoolAvailability::NotEnoughMemory) => {
            page.wrapped("", &format!("{to_add}, not enough memory: {why}"))
        }
        (_, PoolAvailability::NotContiguous) => page.wrapped("", &format!("{to_add}, not contiguous: {why}")),
        (_, PoolAvailability::Unknown) => {
            page.wrapped("", &format!("{to_add}, unknown whether they are available: {why}"))
        }
    }
}

fn is_or_are(pages: Pages) -> &'static str {
    if pages == Pages(1) { "is" } else { "are" }
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
        StartOutcome::DoesNotAsk => terminal.warn("requests no huge pages"),
        StartOutcome::DecidedAtTouch => terminal.warn("decided at page faults"),
        StartOutcome::Unknown => terminal.warn("unknown"),
    };
    // Wider than the column of headings.
    page.line("AS STARTED NOW  ", word)?;
    page.wrapped("", &summary)?;
    if verdict.outcome == StartOutcome::FallsBack {
        let shown = |region: &RegionOutcome| {
            let (name, size) = (plain(&region.name), region.page_size_bytes);
            let is_part = region.huge_bytes > Bytes::ZERO && region.huge_bytes < region.bytes;
            match is_part {
                true => format!("{} of {name} on {size}", region.huge_bytes),
                false => format!("{name} on {size}"),
            }
        };
        page.wrapped("", &verdict.regions.iter().map(shown).collect::<Vec<_>>().join(" · "))?;
    }
    for message in &verdict.messages {
        page.wrapped("", &terminal.dim(&format!("java: {}", plain(message))))?;
    }
    Ok(())
}
