//! Findings about what makes settings of huge pages at boot.

use hugewise_linux::{action::Action, at_boot::BootSetting, facts::Facts, hugepages::thp, units::PageSize};

use super::{Finding, Severity, evidence};

/// Settings that something makes at boot, and that have another value now.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let differs = |setting: &&BootSetting| {
        setting.value.as_ref().zip(now(facts, setting)).is_some_and(|(value, now)| *value != now)
    };
    facts.at_boot.iter().filter(differs).map(|setting| finding(facts, setting)).collect()
}

fn finding(facts: &Facts, setting: &BootSetting) -> Finding {
    let value = setting.value.as_deref().unwrap_or("?");
    let now = now(facts, setting).unwrap_or_default();
    Finding {
        id: "set-at-boot",
        severity: Severity::Warning,
        evidence: vec![evidence(format!("sets {value}"), &setting.file), evidence(&now, &setting.setting)],
        detail: format!(
            "/{} sets /{} to {value}, at boot or whenever its service starts; it is {now} now, so the present value does \
             not last.",
            setting.file.display(),
            setting.setting.display()
        ),
        actions: vec![Action::new(format!(
            "Decide on one value: change or remove that line of /{}",
            setting.file.display()
        ))],
    }
}

/// The value of a setting now; `None` if it is none of those that were read.
fn now(facts: &Facts, setting: &BootSetting) -> Option<String> {
    let is = |path: std::path::PathBuf| setting.setting == path;
    let thp = &facts.thp;
    if is(thp::path("enabled")) {
        return thp.enabled.known().cloned();
    }
    if is(thp::path("defrag")) {
        return thp.defrag.known().cloned();
    }
    if is(thp::path("shmem_enabled")) {
        return thp.shmem_enabled.known().cloned();
    }
    let default: &PageSize = facts.meminfo.default_size.known()?;
    let pool = facts.machine_pools().find(|pool| pool.page_size == *default)?;
    is("proc/sys/vm/nr_hugepages".into()).then(|| pool.total.saturating_sub(pool.surplus).to_string())
}
