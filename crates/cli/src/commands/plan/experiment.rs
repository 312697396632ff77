//! Pool pages of an experiment that runs while a plan is made.

use hugewise_changes::journal::Record;
use hugewise_linux::{
    facts::Facts, hugepages::pools::Pool, reading::Reading, settings::Setting, units::Pages,
};

/// Excludes the pages that the holder of the journal added to pools from the available ones, because it removes them
/// at its end. Returns a note if there are any.
pub fn exclude(facts: &mut Facts, holder: &Record) -> Option<String> {
    let Reading::Known(pools) = &mut facts.pools else { return None };
    let added: Vec<(Pool, Pages)> = holder
        .entries
        .iter()
        .filter_map(|entry| {
            let Setting::Pool { page_size, node } = entry.entry.setting else { return None };
            let pool = pools.iter().find(|pool| (pool.page_size, pool.node) == (page_size, node))?;
            let before = Pages(entry.entry.was.parse().ok()?);
            Some((pool.clone(), pool.total.saturating_sub(pool.surplus).saturating_sub(before)))
        })
        .collect();
    let mut excluded = Vec::new();
    for pool in pools {
        let concerns = |of: &&(Pool, Pages)| {
            of.0.page_size == pool.page_size
                && (pool.node.is_none() || of.0.node.is_none_or(|node| Some(node) == pool.node))
        };
        let pages: Pages = added.iter().filter(concerns).map(|(_, pages)| *pages).sum();
        let pages = pages.min(pool.available());
        pool.free = pool.free.saturating_sub(pages);
        pool.total = pool.total.saturating_sub(pages);
        if pool.node.is_none() && pages > Pages(0) {
            excluded.push(format!("{pages} pages of {}", pool.page_size));
        }
    }
    (!excluded.is_empty()).then(|| {
        format!(
            "{} are not counted as available: {} (pid {}) removes them from the pool at its end",
            excluded.join(" and "),
            holder.purpose,
            holder.owner
        )
    })
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use hugewise_linux::{hugepages::contiguity::Scan, root::Root, units::PageSize};

    use super::*;

    #[test]
    fn pages_that_an_experiment_removes_are_not_available() -> Result<(), Box<dyn Error>> {
        let page_size: PageSize = "2m".parse()?;
        let mut facts = Facts::gather(&Root::at("/nowhere"), Scan::IfQuick);
        // 300 pages, of which the experiment added 200, and of which 50 are in use and 30 reserved.
        facts.pools = Reading::Known(vec![Pool {
            page_size,
            node: None,
            total: Pages(300),
            free: Pages(250),
            reserved: Some(Pages(30)),
            surplus: Pages(0),
            overcommit: None,
        }]);
        let entry = serde_json::json!({"setting": {"pool": {"page_size_bytes": 2_097_152, "node": null}}, "was": "100"});
        let holder: Record = serde_json::from_value(serde_json::json!({
            "boot_id": "", "run_id": "", "owner": 7, "purpose": "compare", "entries": [entry]
        }))?;
        let note = exclude(&mut facts, &holder).unwrap_or_default();
        assert!(note.contains("200 pages of 2MiB") && note.contains("compare (pid 7)"), "{note}");
        assert_eq!(facts.machine_pools().map(Pool::available).collect::<Vec<_>>(), [Pages(20)]);
        Ok(())
    }
}
