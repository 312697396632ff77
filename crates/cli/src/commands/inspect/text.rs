//! Text output of `inspect`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use comfy_table::Table;
use hugewise_evidence::process::{
    Failed, Inspected, InspectedRegion, Kind, MachineState, Reason, Totals, huge, sum,
};
use hugewise_linux::{
    action::Action,
    hugepages::pool_use::PoolUse,
    proc::process::Obstacle,
    sys::process::how_to_get_capability,
    units::{Bytes, PageSize},
};

use crate::output::{
    layout::Page,
    pool_use,
    table::{align_right, plain_table},
    terminal::{Terminal, plain},
    words::{amount, coverage, shortened},
};

/// Regions below this share of the resident bytes, 0 to 1, are summed up.
const MIN_RESIDENT_SHARE: f64 = 0.005;
/// Width of a region's name in the table, in characters.
const MAX_NAME_CHARS: usize = 44;
/// Largest number of region names before a reason.
const MAX_NAMES: usize = 3;
/// Largest number of unreadable processes that are listed.
const MAX_PIDS: usize = 8;

/// The report on each process.
pub fn text(
    found: &[Inspected],
    failed: &[Failed],
    machine: &MachineState,
    full: bool,
    terminal: &Terminal,
) -> anyhow::Result<String> {
    let mut page = Page::new(terminal);
    for (n, inspected) in found.iter().enumerate() {
        if n > 0 {
            page.line("", "")?;
        }
        process(&mut page, inspected)?;
        page.line("", "")?;
        let rows = rows(inspected, full);
        page.table(&table(&rows, machine, inspected.folio_sizes.known().is_some(), full))?;
        reasons(&mut page, &rows)?;
        unknown(&mut page, inspected, machine)?;
    }
    if found.len() > 1 {
        page.line("", "")?;
        let count = found.len();
        let text = memory(&sum(found));
        page.wrapped("TOTAL", &format!("{count} processes, shared memory counted once: {text}"))?;
    }
    if !found.is_empty() && !failed.is_empty() {
        page.line("", "")?;
    }
    page.list("UNREADABLE", failed.iter().map(|failed| plain(&failed.detail)))?;
    Ok(page.into_text())
}

/// A table with one line per process.
pub fn overview(
    found: &[Inspected],
    failed: &[Failed],
    users: &PoolUse,
    machine: &MachineState,
    terminal: &Terminal,
) -> anyhow::Result<String> {
    let mut page = Page::new(terminal);
    let mut table = plain_table();
    let thp = machine.pmd().map_or_else(|| "THP".to_owned(), |pmd| format!("THP {pmd}"));
    table.set_header(["pid", "name", "resident", &thp, "of pools", "coverage", "swapped"]);
    for inspected in found {
        let totals = &inspected.totals;
        // smaps_rollup does not report the size of hugetlb pages, so they have a column of their own.
        let (thp, pools) = (huge(&totals.bytes_by_page_size, machine.sizes.base), totals.hugetlb_bytes);
        table.add_row([
            inspected.pid.to_string(),
            plain(&inspected.name),
            totals.resident_bytes.to_string(),
            amount(thp),
            amount(pools),
            coverage((thp + pools).share_of(totals.resident_bytes), "–"),
            amount(totals.swapped_bytes),
        ]);
    }
    align_right(&mut table, [0, 2, 3, 4, 5, 6]);
    page.table(&table)?;
    page.list("POOLS", pool_use::lines(users, machine.pools.iter()))?;
    let (others, unknown): (Vec<&Failed>, Vec<&Failed>) =
        failed.iter().partition(|failed| failed.cause == Obstacle::NotAllowed);
    let mut reasons: Vec<String> = unknown.iter().map(|failed| plain(&failed.detail)).collect();
    if !others.is_empty() {
        let pids: Vec<String> = others.iter().map(|failed| failed.pid.to_string()).take(MAX_PIDS).collect();
        let more = others.len().saturating_sub(MAX_PIDS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        reasons.push(format!(
            "{}{more}: owned by another user, or not dumpable; reading them needs CAP_SYS_PTRACE: {}",
            pids.join(", "),
            how_to_get_capability()
        ));
    }
    page.list("UNKNOWN", reasons)?;
    Ok(page.into_text())
}

fn process(page: &mut Page, inspected: &Inspected) -> fmt::Result {
    let mut facts = vec![format!("{} {}", inspected.pid, plain(&inspected.name))];
    facts.extend(inspected.pid_inside.map(|pid| format!("{pid} in its container")));
    facts.extend(inspected.is_jvm.filter(|is_jvm| *is_jvm).map(|_| "a JVM".to_owned()));
    facts.extend(inspected.uid.known().map(|uid| format!("uid {uid}")));
    facts.push(format!("names from {}", plain(&inspected.names_from)));
    if inspected.thp_enabled.known() == Some(&false) {
        facts.push("THP disabled by prctl".to_owned());
    }
    page.line("PROCESS", facts.join(" · "))?;
    let command = plain(&inspected.command.join(" "));
    page.line("", shortened(&command, 88))?;
    page.wrapped("MEMORY", &memory(&inspected.totals))
}

/// `1.1GiB resident: 96 % on 2MiB (1GiB) · 4 % on 4KiB (48MiB)`, the largest share first.
fn memory(totals: &Totals) -> String {
    let mut by_size: Vec<(&PageSize, &Bytes)> = totals.bytes_by_page_size.iter().collect();
    by_size.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    let shares = by_size.into_iter().map(|(size, bytes)| {
        format!("{} on {size} ({bytes})", coverage(bytes.share_of(totals.resident_bytes), "–"))
    });
    let mut text = format!("{} resident: {}", totals.resident_bytes, shares.collect::<Vec<_>>().join(" · "));
    if totals.hugetlb_bytes > Bytes::ZERO {
        text += &format!(" · {} of that from pools", totals.hugetlb_bytes);
    }
    if totals.suitable_bytes > Bytes::ZERO {
        text += &format!(" · {} of it can be on huge pages", totals.suitable_bytes);
    }
    if totals.swapped_bytes > Bytes::ZERO {
        text += &format!(" · {} swapped out", totals.swapped_bytes);
    }
    text
}

/// A line of the table: a region, or several of a kind.
#[derive(Default)]
struct RegionRow {
    name: String,
    addresses: Option<(u64, u64)>,
    regions: usize,
    resident: Bytes,
    /// Resident bytes without those that another row contains.
    counted: Bytes,
    by_size: BTreeMap<PageSize, Bytes>,
    hugetlb: Bytes,
    swapped: Bytes,
    /// Bytes on base pages by reason and text.
    reasons: Vec<RegionReason>,
}

#[derive(Clone, PartialEq, Eq)]
struct RegionReason {
    reason: Reason,
    words: String,
    actions: Vec<Action>,
    bytes: Bytes,
}

impl RegionRow {
    fn add(&mut self, region: &InspectedRegion) {
        self.regions += 1;
        self.resident += region.pages.resident_bytes;
        self.counted += region.pages.resident_bytes.saturating_sub(region.counted_above_bytes);
        self.hugetlb += region.pages.hugetlb_bytes;
        self.swapped += region.swapped_bytes;
        for (size, bytes) in &region.pages.bytes_by_page_size {
            *self.by_size.entry(*size).or_default() += *bytes;
        }
        let (Some(reason), Some(words)) = (region.pages.reason, &region.detail) else { return };
        let bytes = region.pages.reason_bytes.unwrap_or_default();
        match self.reasons.iter_mut().find(|why| why.reason == reason && why.words == *words) {
            Some(why) => why.bytes += bytes,
            None => {
                let (words, actions) = (words.clone(), region.actions.clone());
                self.reasons.push(RegionReason { reason, words, actions, bytes });
            }
        }
    }

    fn why(&self) -> Option<&RegionReason> {
        self.reasons.iter().max_by_key(|why| why.bytes)
    }
}

/// The regions as rows, the largest first. Unless `full`, regions of one name share a row, and small regions
/// are summed up.
fn rows(inspected: &Inspected, full: bool) -> Vec<RegionRow> {
    let regions = inspected.regions.as_deref().unwrap_or_default();
    if full {
        let row = |region: &InspectedRegion| {
            let addresses = Some((region.pages.start, region.pages.end));
            let mut row = RegionRow { name: with_view(region), addresses, ..RegionRow::default() };
            row.add(region);
            row
        };
        let mut rows: Vec<RegionRow> = regions.iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.counted, row.resident)));
        return rows;
    }
    let mut by_name: BTreeMap<String, RegionRow> = BTreeMap::new();
    let there = |region: &&InspectedRegion| region.pages.resident_bytes + region.swapped_bytes > Bytes::ZERO;
    for region in regions.iter().filter(there) {
        let name = of_a_kind(region);
        let row = by_name.entry(name.clone()).or_default();
        row.name = name;
        row.add(region);
    }
    let total = inspected.totals.resident_bytes;
    let is_small = |row: &RegionRow| {
        row.resident.share_of(total).is_none_or(|share| share < MIN_RESIDENT_SHARE)
            && row.hugetlb == Bytes::ZERO
    };
    let (small, mut rows): (Vec<RegionRow>, Vec<RegionRow>) = by_name.into_values().partition(is_small);
    rows.sort_by_key(|row| std::cmp::Reverse((row.counted, row.resident)));
    let mut others = RegionRow::default();
    for row in small {
        others.regions += row.regions;
        others.resident += row.resident;
        others.swapped += row.swapped;
        row.by_size.iter().for_each(|(size, bytes)| *others.by_size.entry(*size).or_default() += *bytes);
    }
    if others.regions > 0 {
        others.name = format!("others ({} regions, see --full)", others.regions);
        others.regions = 1;
        rows.push(others);
    }
    rows
}

fn of_a_kind(region: &InspectedRegion) -> String {
    let name = &region.pages.name;
    let is_thread = name.starts_with("stack of") && !name.ends_with("main thread");
    match region.kind {
        Kind::Stack if is_thread => "stacks of threads".to_owned(),
        _ => with_view(region),
    }
}

fn with_view(region: &InspectedRegion) -> String {
    match region.same_memory_as {
        Some(_) => format!("{} (mapped again, counted once)", region.pages.name),
        None => region.pages.name.clone(),
    }
}

fn table(rows: &[RegionRow], machine: &MachineState, folios_reported: bool, full: bool) -> Table {
    let mut sizes: BTreeSet<PageSize> = rows.iter().flat_map(|row| row.by_size.keys().copied()).collect();
    sizes.extend([Some(machine.sizes.base), machine.pmd()].into_iter().flatten());
    let any_pool = rows.iter().any(|row| row.hugetlb > Bytes::ZERO);
    let any_swap = rows.iter().any(|row| row.swapped > Bytes::ZERO);
    let mut header: Vec<String> = Vec::new();
    if full {
        header.push("addresses".to_owned());
    }
    header.extend(["region".to_owned(), "resident".to_owned()]);
    header.extend(sizes.iter().map(|size| match *size == machine.sizes.base && !folios_reported {
        true => format!("{size} or mTHP"),
        false => size.to_string(),
    }));
    header.extend(any_pool.then(|| "of pools".to_owned()));
    header.extend(any_swap.then(|| "swapped".to_owned()));
    header.extend(["coverage", "why not"].map(str::to_owned));
    let mut table = plain_table();
    let columns = header.len();
    table.set_header(header);
    for row in rows {
        let mut cells: Vec<String> = Vec::new();
        if full {
            cells.push(row.addresses.map_or_else(String::new, |(start, end)| format!("{start:x}-{end:x}")));
        }
        let times = if row.regions > 1 { format!(" ×{}", row.regions) } else { String::new() };
        let name = plain(&row.name);
        cells.push(match full {
            true => name,
            false => shortened(&name, MAX_NAME_CHARS - times.chars().count()) + &times,
        });
        cells.push(row.resident.to_string());
        cells.extend(sizes.iter().map(|size| amount(row.by_size.get(size).copied().unwrap_or_default())));
        cells.extend(any_pool.then(|| amount(row.hugetlb)));
        cells.extend(any_swap.then(|| amount(row.swapped)));
        cells.push(coverage(huge(&row.by_size, machine.sizes.base).share_of(row.resident), "–"));
        cells.push(row.why().map_or_else(String::new, |why| format!("{} ({})", word(why.reason), why.bytes)));
        table.add_row(cells);
    }
    let numbers = if full { 2 } else { 1 }..columns - 1;
    align_right(&mut table, numbers);
    table
}

/// The enum value of a reason, as in JSON.
fn word(reason: Reason) -> String {
    serde_json::to_value(reason).ok().and_then(|word| Some(word.as_str()?.to_owned())).unwrap_or_default()
}

/// Each reason as text, with its regions.
fn reasons(page: &mut Page, rows: &[RegionRow]) -> fmt::Result {
    let mut reported: Vec<(&RegionReason, Vec<&RegionRow>)> = Vec::new();
    for row in rows {
        let Some(why) = row.why() else { continue };
        match reported.iter_mut().find(|(other, _)| other.words == why.words) {
            Some((_, rows)) => rows.push(row),
            None => reported.push((why, vec![row])),
        }
    }
    if !reported.is_empty() {
        page.line("", "")?;
    }
    for (n, (why, rows)) in reported.iter().enumerate() {
        let mut names: Vec<String> =
            rows.iter().take(MAX_NAMES).map(|row| shortened(&plain(&row.name), MAX_NAME_CHARS)).collect();
        if rows.len() > MAX_NAMES {
            names.push(format!("{} more", rows.len() - MAX_NAMES));
        }
        let bytes: Bytes = rows.iter().filter_map(|row| row.why()).map(|why| why.bytes).sum();
        let text = format!("{}, {bytes} ({}): {}", word(why.reason), names.join(", "), plain(&why.words));
        page.wrapped(if n == 0 { "WHY NOT" } else { "" }, &text)?;
        for action in &why.actions {
            page.wrapped("", &format!("→ {}", plain(&action.change)))?;
            page.commands(action)?;
        }
    }
    Ok(())
}

fn unknown(page: &mut Page, inspected: &Inspected, machine: &MachineState) -> fmt::Result {
    let mthp = |reason| format!("which of the {} pages belong to mTHP: {reason}", machine.sizes.base);
    let mthp = inspected.folio_sizes.reason().map(mthp);
    page.list("UNKNOWN", mthp.iter().chain(&inspected.notes).map(|text| plain(text)))
}
