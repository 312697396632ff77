//! Actions after a verdict.

use hugewise_linux::{action::Action, shell, systemd::Unit};
use hugewise_plan::malloc::OffHeap;

use crate::{
    comparison::{ArmBacking, Case, parameters::substitute},
    verdict::Verdict,
};

/// A program to run on a backing.
pub(super) struct Program<'a> {
    /// Its short name, as in [`Case::workload`].
    pub(super) workload: &'a str,
    pub(super) command: &'a [String],
}

impl Program<'_> {
    /// Whether the command is that of a JVM.
    fn is_java(&self) -> bool {
        self.workload.starts_with("java ")
    }
}

/// The changes to make after the verdict on an arm of a case.
pub(super) fn actions(verdict: Verdict, arm: &ArmBacking, case: &Case) -> Vec<Action> {
    of_program(verdict, arm, case, &Program { workload: &case.workload, command: &case.command })
}

/// The changes to make after the verdict on the effect of a server's backing.
pub(super) fn of_server(
    verdict: Verdict,
    name: &str,
    arm: &ArmBacking,
    case: &Case,
    program: &Program<'_>,
) -> Vec<Action> {
    let named = |action: Action| match verdict {
        Verdict::Faster => Action { change: format!("Server {name}: {}", action.change), ..action },
        _ => action,
    };
    of_program(verdict, arm, case, program).into_iter().map(named).collect()
}

fn of_program(verdict: Verdict, arm: &ArmBacking, case: &Case, program: &Program<'_>) -> Vec<Action> {
    match verdict {
        Verdict::Faster if !case.embedded => run(arm, case, program),
        Verdict::FellBack => {
            vec![Action::new("Find out why the rounds fell back").by("hugewise check")]
        }
        Verdict::Inconclusive => {
            let also = match case.driver.is_empty() {
                true => "a command also with --turns or --metric cpu",
                false => "also with a longer load, or by the CPU time of each operation (--operations)",
            };
            vec![Action::new(format!(
                "Measure again with a longer --max-time or more --rounds, or on a quieter machine; {also}"
            ))]
        }
        _ => Vec::new(),
    }
}

/// Starting the command on the backing, with the pool for it.
fn run(arm: &ArmBacking, case: &Case, program: &Program<'_>) -> Vec<Action> {
    let command = shell::line(&substitute(program.command, &case.parameters));
    let (backing, off_heap) = (arm.backing(), arm.off_heap());
    let needs_pool = backing.is_explicit() || off_heap == Some(OffHeap::Hugetlb);
    if let Some(unit) = Unit::parse(program.workload) {
        return configure(&unit, arm, needs_pool);
    }
    // 'hugewise plan' counts the pages of a JVM, not those of malloc.
    let pool = (needs_pool && off_heap.is_none() && program.is_java()).then(|| {
        Action::new(format!("Count the pages for {backing}, and reserve them with the plan's command"))
            .by(format!("hugewise plan --backing {backing} -- {command}"))
            .verified_by("hugewise check")
    });
    let run = if needs_pool && pool.is_none() {
        format!(
            "Reserve a pool for all memory that it maps (hugewise apply --pool), and run the command on {arm}"
        )
    } else {
        format!("Run the command on {arm}")
    };
    let off_heap = off_heap.map(|off_heap| format!(" --off-heap {off_heap}")).unwrap_or_default();
    let run = Action::new(run).by(format!("hugewise run --backing {backing}{off_heap} -- {command}"));
    pool.into_iter().chain([run.verified_by("hugewise inspect PID")]).collect()
}

/// Giving a service the variables that the notes of a comparison name.
fn configure(unit: &Unit, arm: &ArmBacking, needs_pool: bool) -> Vec<Action> {
    let name = shell::word(unit.name());
    let pool = needs_pool.then(|| {
        Action::new("Reserve a pool for all memory that it maps; of a JVM, a plan as the user of the service counts it")
            .by(format!("hugewise plan --backing {} --pid {name}", arm.backing()))
            .verified_by("hugewise check")
    });
    let variables = Action::new(format!(
        "Set the variables that a note names for {arm} in the unit (Environment=), and restart it"
    ))
    .by(format!("sudo systemctl edit {name}"))
    .verified_by(format!("sudo hugewise inspect {name}"));
    pool.into_iter().chain([variables]).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hugewise_linux::hugepages::backing::Backing;

    use super::*;

    #[test]
    fn a_faster_command_is_run_on_its_backing() {
        let of = |workload: &str, arm: &str, command: &[&str]| -> Vec<String> {
            let case = Case {
                workload: workload.to_owned(),
                embedded: false,
                command: command.iter().map(|word| (*word).to_owned()).collect(),
                servers: Vec::new(),
                driver: Vec::new(),
                parameters: BTreeMap::new(),
                figures: Vec::new(),
            };
            let arm = arm.parse().unwrap_or(Backing::Base.into());
            actions(Verdict::Faster, &arm, &case).into_iter().filter_map(|action| action.command).collect()
        };
        assert_eq!(
            of("java 25", "base + off-heap thp", &["java", "-jar", "a b.jar"]),
            ["hugewise run --backing base --off-heap thp -- java -jar 'a b.jar'"]
        );
        assert_eq!(
            of("java 25", "hugetlb:1GiB", &["java", "Main"]),
            [
                "hugewise plan --backing hugetlb:1GiB -- java Main",
                "hugewise run --backing hugetlb:1GiB -- java Main"
            ]
        );
        assert_eq!(of("sort", "hugetlb", &["sort", ""]), ["hugewise run --backing hugetlb -- sort ''"]);
        let start = ["systemctl", "start", "app.service"];
        assert_eq!(of("app.service", "thp", &start), ["sudo systemctl edit app.service"]);
        assert_eq!(
            of("app.service", "hugetlb", &start),
            ["hugewise plan --backing hugetlb --pid app.service", "sudo systemctl edit app.service"]
        );
    }
}
