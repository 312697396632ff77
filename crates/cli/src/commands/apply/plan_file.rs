//! Reads the parts of the output of `hugewise plan --json` that `apply` needs.

use std::{
    io::{self, Read},
    path::Path,
};

use anyhow::{Context, ensure};
use hugewise_changes::difference::{RequestedValue, SettingRequest, ValueAtPlan};
use hugewise_linux::{
    settings::Setting,
    sys::file,
    units::{PageSize, Pages},
};
use hugewise_plan::plan::Plan;
use serde::Deserialize;

/// Largest plan that is read, in bytes.
const MAX_PLAN_BYTES: u64 = 16 << 20;
/// Schemas that have the fields of [`PlanFile`].
const SCHEMAS: [&str; 2] = ["hugewise.plan/1", "hugewise.plan/2"];

/// The fields of a plan that `apply` reads; others are ignored.
#[derive(Debug, Deserialize)]
struct PlanFile {
    schema: String,
    pools: Vec<PlannedPool>,
    #[serde(default)]
    settings: Vec<PlannedSetting>,
}

/// A pool that a plan needs.
#[derive(Debug, Deserialize)]
struct PlannedPool {
    page_size_bytes: PageSize,
    /// `None` for the pool of all nodes.
    node: Option<u32>,
    /// Pages that must be available to new mappings.
    pages_needed: Pages,
    /// Pages available when the plan was made.
    pages_available: Pages,
    /// All pages in the pool when the plan was made.
    pages_in_pool: Pages,
}

/// A setting that a plan needs.
#[derive(Debug, Deserialize)]
struct PlannedSetting {
    setting: Setting,
    /// Value when the plan was made.
    from: String,
    /// Value that the plan needs.
    to: String,
}

/// Reads the plan from `path`, or from standard input if that is `-`.
pub fn read(path: &Path) -> anyhow::Result<Vec<SettingRequest>> {
    let is_input = path == Path::new("-");
    let text = if is_input {
        limited(io::stdin().lock()).context("cannot read the plan from standard input")?
    } else {
        let read = file::open_named(path).and_then(limited);
        read.with_context(|| format!("cannot read the plan {}", path.display()))?
    };
    parse(&text).with_context(|| {
        let what = if is_input { "standard input".into() } else { path.to_string_lossy() };
        format!("{what} is not a plan; 'hugewise plan --json' writes one")
    })
}

fn limited(source: impl Read) -> io::Result<String> {
    String::from_utf8(file::content(source, MAX_PLAN_BYTES)?).map_err(io::Error::other)
}

fn parse(text: &str) -> anyhow::Result<Vec<SettingRequest>> {
    let plan: PlanFile = serde_json::from_str(text)?;
    ensure!(
        SCHEMAS.contains(&plan.schema.as_str()),
        "its schema is '{}', and must be {}",
        plan.schema,
        SCHEMAS.join(" or ")
    );
    let of_pool = |pool: PlannedPool| SettingRequest {
        setting: Setting::Pool { page_size: pool.page_size_bytes, node: pool.node },
        wanted: RequestedValue::Available(pool.pages_needed),
        seen: Some(ValueAtPlan::Pool { total: pool.pages_in_pool, available: pool.pages_available }),
    };
    let of_setting = |planned: PlannedSetting| SettingRequest {
        setting: planned.setting,
        wanted: RequestedValue::Value(planned.to),
        seen: Some(ValueAtPlan::Value(planned.from)),
    };
    Ok(plan.pools.into_iter().map(of_pool).chain(plan.settings.into_iter().map(of_setting)).collect())
}

/// The changes that `plan` needs: the same as those of its file.
pub fn changes_of(plan: &Plan) -> anyhow::Result<Vec<SettingRequest>> {
    parse(&serde_json::to_string(plan)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"{"schema": "hugewise.plan/1", "verdict": {"fits": true}, "pools": [
            {"page_size_bytes": 2097152, "node": null, "pages_needed": 651, "pages_available": 3,
             "pages_in_pool": 7, "pages_to_add": 648, "why": "heap"}],
            "settings": [{"setting": {"shmem_enabled": {"page_size": null}}, "from": "never", "to": "advise"},
                         {"setting": "shm_max", "from": "1", "to": "2", "why": "shm"}]}"#;

    #[test]
    fn unknown_fields_of_a_plan_are_ignored() -> anyhow::Result<()> {
        let requests = parse(PLAN)?;
        assert_eq!(requests.len(), 3);
        assert_eq!(requests[0].wanted, RequestedValue::Available(Pages(651)));
        assert_eq!(requests[0].seen, Some(ValueAtPlan::Pool { total: Pages(7), available: Pages(3) }));
        assert_eq!(requests[1].setting, Setting::ShmemEnabled { page_size: None });
        assert_eq!(requests[2].seen, Some(ValueAtPlan::Value("1".to_owned())));
        Ok(())
    }

    #[test]
    fn invalid_plans_are_refused() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"schema": "hugewise.check/1", "pools": []}"#,
            r#"{"schema": "hugewise.plan/1", "pools": [{"page_size_bytes": 3}]}"#,
            r#"{"schema": "hugewise.plan/1", "pools": [], "settings": [{"setting": "weather", "from": "", "to": ""}]}"#,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn damaged_plans_do_not_panic() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2000 {
            let mut bytes = PLAN.as_bytes().to_vec();
            for _ in 0..random.usize(1..4) {
                let place = random.usize(..bytes.len());
                bytes[place] = random.u8(..);
            }
            bytes.truncate(random.usize(..=bytes.len() * 2));
            let _ = parse(&String::from_utf8_lossy(&bytes));
        }
    }
}
