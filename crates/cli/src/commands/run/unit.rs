//! `run --unit`: restarts a systemd service on a backing, and reports the coverage of its regions.

use std::{fs::File, path::Path, process::ExitCode};

use anyhow::{Context, bail, ensure};
use hugewise_changes::{
    drop_in::{DropIn, DropInOwner},
    journal::{Journal, STATE_DIR, UnitChange},
};
use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes, thp},
    root::Root,
    sys::process::is_root,
    systemd::{Unit, systemctl},
};
use hugewise_measure::{serving::last_messages, workload::UnitProgram};

use super::{
    Run,
    assignment::{ObserverTask, ReportPlace},
    observer,
    report::Verdict,
};
use crate::{NEGATIVE, machine, unit_program};

/// Restarts the service with the variables of the backing, or puts it back with --undo.
pub fn run(run: &Run, unit: &Unit) -> anyhow::Result<ExitCode> {
    ensure!(is_root(), "--unit {unit}: only root can restart services; try sudo");
    let drop_in = DropIn::of(unit, DropInOwner::Run);
    if run.undo {
        return undo(run, drop_in, unit);
    }
    let root = Root::live();
    let sizes = PageSizes::read(&root).map_err(anyhow::Error::msg)?;
    let backing = run.backing.map_or_else(|| automatic(&root), Ok)?;
    if let Some(missing) = sizes.missing(backing) {
        bail!("--backing {backing}: {missing}");
    }
    let instead = format!("hugewise plan --pid {unit} has its options");
    let program = unit_program::read(&root, unit, &instead)?;
    let (variables, notes) = program.variables(backing, &sizes).map_err(anyhow::Error::msg)?;
    run.say(&format!("backing {backing}"));
    notes.iter().for_each(|note| run.say(&format!("{unit}: {note}")));
    let (place, report) = run.report_file()?;
    // A kill from here on is undone by 'hugewise restore'.
    let mut journal = Journal::open(&root, Path::new(STATE_DIR), &format!("run --unit {unit}"))?;
    let change = UnitChange { unit: unit.clone(), drop_in: DropInOwner::Run, was_running: true };
    journal.note_unit(change.clone())?;
    let set = drop_in.set(&variables).with_context(|| format!("a drop-in of {unit} cannot be written"));
    let restarted = set.and_then(|()| {
        systemctl(&["restart", unit.name()])?;
        unit.main_process()?.with_context(|| has_ended(unit))
    });
    // From here on the service stays as it is, until it is put back by --undo.
    if restarted.is_ok() {
        journal.forget_unit(&change)?;
    }
    machine::all_restored(&journal.close()).with_context(|| format!("{unit} was not restarted as it was"))?;
    let failed = || format!("{unit} did not start on {backing}, and was restarted without a drop-in");
    let pid = restarted.with_context(failed)?;
    match observed(run, &program, backing, pid, (place, report)) {
        Ok(Verdict::NotShort) => Ok(ExitCode::SUCCESS),
        Ok(Verdict::TooFewPages) => Ok(ExitCode::from(NEGATIVE)),
        Ok(Verdict::OptionsNotTaken) => {
            drop_in.undo().with_context(|| format!("{unit} was not restarted as it was"))?;
            run.say(&format!("{unit} did not take the options, and was restarted as it was"));
            Ok(ExitCode::from(NEGATIVE))
        }
        Err(error) => {
            drop_in.undo().with_context(|| format!("{unit} was not restarted as it was"))?;
            Err(error.context(failed()))
        }
    }
}

/// Why the service does not run.
fn has_ended(unit: &Unit) -> String {
    match last_messages(unit) {
        said if said.is_empty() => format!("it has ended; next: journalctl --unit {unit}"),
        said => format!("it has ended; its last messages:\n{said}"),
    }
}

/// Waits until the coverage of the restarted service is reported.
fn observed(
    run: &Run,
    program: &UnitProgram,
    backing: Backing,
    pid: u32,
    (place, report): (ReportPlace, Option<File>),
) -> anyhow::Result<Verdict> {
    let unit = &program.unit;
    run.say(&format!(
        "{unit} was restarted, and starts like this until the machine is started again; undo it with \
         'sudo hugewise run --undo --unit {unit}'"
    ));
    run.say(&format!("its report follows when its memory is steady, or after {} s", run.within));
    let task = ObserverTask {
        pid,
        program: unit.to_string(),
        backing,
        off_heap: None,
        max_heap: None,
        for_jvms: program.is_jvm,
        passed: program.is_jvm.then(|| program.passed(backing)).transpose().map_err(anyhow::Error::msg)?,
        collapse: false,
        behind_wrapper: true,
        patience: run.patience(),
        exact: false,
        is_service: true,
        report: place,
    };
    let verdict = if run.quiet { Verdict::default() } else { observer::report(&task, report)? };
    ensure!(unit.main_process()? == Some(pid), has_ended(unit));
    Ok(verdict)
}

/// Puts the service back, and restarts it if it runs.
fn undo(run: &Run, drop_in: DropIn, unit: &Unit) -> anyhow::Result<ExitCode> {
    ensure!(drop_in.exists(), "--undo: {unit} was not restarted by 'hugewise run --unit'");
    if unit.main_process()?.is_some() {
        drop_in.undo()?;
        run.say(&format!("{unit} was restarted as it was"));
    } else {
        drop_in.remove()?;
        run.say(&format!("{unit} does not run; it starts as it was"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The backing of `auto`: how many pages of a pool the service would take is unknown.
fn automatic(root: &Root) -> anyhow::Result<Backing> {
    match thp::read(root).pmd_enabled() {
        Some(("never", _)) | None => bail!(
            "transparent huge pages are not available, and auto takes no pool for a service: enable them with \
             'sudo hugewise apply --thp-enabled madvise', or give --backing hugetlb"
        ),
        Some(_) => Ok(Backing::Thp),
    }
}
