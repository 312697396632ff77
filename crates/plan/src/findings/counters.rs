//! Finding about hardware counters.

use hugewise_linux::{action::Action, cpu::pmu, facts::Facts, proc::limits::Capabilities};

use super::{Finding, Severity, evidence};

/// Whether TLB misses can be counted, and by the caller.
pub fn finding(facts: &Facts) -> Option<Finding> {
    if facts.pmu.has_cores()? {
        let paranoid = *facts.pmu.paranoid.known()?;
        let capabilities = facts.limits.capabilities.known()?;
        let may = capabilities.has(Capabilities::PERFMON) || capabilities.has(Capabilities::SYS_ADMIN);
        return (paranoid > 2 && !may).then(|| Finding {
            id: "tlb-counters-forbidden",
            severity: Severity::Info,
            evidence: vec![evidence(paranoid, pmu::PARANOID)],
            detail: "With perf_event_paranoid above 2 (Debian, Ubuntu), CAP_PERFMON is required to \
                          count TLB misses."
                .to_owned(),
            actions: vec![
                Action::new("Permit counting to all users").by("sudo sysctl -w kernel.perf_event_paranoid=2"),
            ],
        });
    }
    Some(Finding {
        id: "no-tlb-counters",
        severity: Severity::Info,
        evidence: vec![evidence("no PMU of the cores", pmu::DEVICES)],
        detail: "TLB misses cannot be counted, as on most virtual machines: only times show the effect \
                      of huge pages."
            .to_owned(),
        actions: Vec::new(),
    })
}
