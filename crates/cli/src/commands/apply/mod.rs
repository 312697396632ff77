//! `hugewise apply`: changes settings until `hugewise restore`.

pub mod plan_file;
pub mod text;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, ensure};
use clap::Args;
use hugewise_changes::{
    apply::{WriteError, Writer},
    difference::{Difference, RequestedValue, SettingRequest},
    journal::STATE_DIR,
    persisted::ConfigFiles,
    pool_growth::Shortage,
};
use hugewise_linux::{
    at_boot::{self, BootSetting},
    json,
    proc::meminfo,
    reading::Reason,
    root::Root,
    settings::{Knob, Setting},
    units::{Bytes, PageSize, Pages},
};

use self::text::{ApplyReport, State, difference_text, outcome_text};
use super::plan::{self, PlanOptions};
use crate::{
    NEGATIVE, machine,
    output::{
        standard_output::{print, print_json, print_styled},
        terminal::Terminal,
    },
};

/// Apply a plan or single settings, until 'hugewise restore' or a reboot
///
/// Prints the changes first. Then, for each setting, writes the old value to the journal, changes the
/// setting and reads it back. A pool grows in steps; if the kernel finds too few free pages, memory is
/// compacted between the steps. A pool that stays too small keeps the pages that it got, and the cause
/// is printed. 'hugewise restore' undoes all changes; so does a reboot, except with --persist.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Apply {
    /// Plan written by 'hugewise plan --json'; - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    plan: Option<PathBuf>,
    /// Pages in a pool, on all NUMA nodes or on one; +PAGES adds to the pool. May be repeated
    #[arg(long, value_name = "SIZE[@NODE]=[+]PAGES", value_parser = pool_request)]
    pool: Vec<SettingRequest>,
    /// Surplus pages that may be allocated beyond the pool (nr_overcommit_hugepages)
    #[arg(long, value_name = "SIZE=PAGES", value_parser = sized_value)]
    overcommit: Vec<SizedValue>,
    /// THP mode: always, madvise or never; with SIZE also inherit
    #[arg(long, value_name = "[SIZE=]WORD", value_parser = sized_value)]
    thp_enabled: Vec<SizedValue>,
    /// When page faults wait for huge pages: always, defer, defer+madvise, madvise, never
    #[arg(long, value_name = "WORD")]
    thp_defrag: Option<String>,
    /// THP mode of shared memory: always, within_size, advise, never, …; with SIZE also inherit
    #[arg(long, value_name = "[SIZE=]WORD", value_parser = sized_value)]
    shmem_enabled: Vec<SizedValue>,
    /// khugepaged setting: defrag, scan_sleep_millisecs, alloc_sleep_millisecs, pages_to_scan,
    /// max_ptes_none, max_ptes_swap, max_ptes_shared
    #[arg(long, value_name = "NAME=NUMBER", value_parser = khugepaged_request)]
    khugepaged: Vec<SettingRequest>,
    /// Group that may use SysV shared memory on huge pages (vm.hugetlb_shm_group)
    #[arg(long, value_name = "GID")]
    shm_group: Option<u32>,
    /// Largest SysV shared memory segment (kernel.shmmax)
    #[arg(long, value_name = "SIZE")]
    shmmax: Option<Bytes>,
    /// Total of all SysV shared memory segments, in base pages (kernel.shmall)
    #[arg(long, value_name = "PAGES")]
    shmall: Option<u64>,
    /// Print the changes without applying them
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Undo all changes if a pool stays smaller than requested
    #[arg(long)]
    all_or_nothing: bool,
    /// Apply despite warnings: too little memory would stay available, or a setting has changed since
    /// the plan was made
    #[arg(long)]
    force: bool,
    /// Memory that must stay available [default: a tenth of the memory available now, at least 512MiB]
    #[arg(long, value_name = "SIZE")]
    floor: Option<Bytes>,
    /// Also apply the settings at every boot: write sysctl.d/60-hugewise.conf and tmpfiles.d/hugewise.conf
    #[arg(long)]
    persist: bool,
    /// Replace the files of --persist even if hugewise did not write them, or they were edited
    #[arg(long, requires = "persist")]
    overwrite: bool,
    /// Print JSON (schema hugewise.apply/2)
    #[arg(long)]
    json: bool,
    /// Folder of the configuration files
    #[arg(long, value_name = "DIR", default_value = "/etc", hide = true)]
    etc: PathBuf,
    #[command(flatten)]
    wishes: PlanOptions,
    /// java command line: apply the plan that 'hugewise plan' makes for it
    #[arg(last = true)]
    command: Vec<String>,
}

const AFTER_HELP: &str = "\
Examples:
  hugewise apply --dry-run --pool 2MiB=1000           print what would change
  sudo hugewise apply --pool 2MiB=1000                set the pool to 1000 pages
  sudo hugewise apply --pool 2MiB=+200 --pool 1GiB@0=4
  sudo hugewise apply --thp-enabled madvise --shmem-enabled advise --khugepaged max_ptes_none=0
  sudo hugewise apply --thp-enabled 64KiB=madvise     set a single page size
  sudo hugewise apply -- java -Xmx4g -jar app.jar     apply the plan for this command line
  sudo hugewise apply --plan plan.json --all-or-nothing
  sudo hugewise apply --pool 2MiB=1000 --persist      also apply it at every boot
  sudo hugewise restore                               undo all changes

Exit status: 0 all settings have the requested values (with --dry-run: would have them); 1 a pool is
smaller than requested, or warnings prevented the changes; 2 usage error, or a failure after which
all changes were undone; 128 + signal number if interrupted, with all changes undone.";

/// `[SIZE=]VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SizedValue {
    page_size: Option<PageSize>,
    value: String,
}

fn request(setting: Setting, wanted: RequestedValue) -> SettingRequest {
    SettingRequest { setting, wanted, seen: None }
}

fn value_request(setting: Setting, value: impl ToString) -> SettingRequest {
    request(setting, RequestedValue::Value(value.to_string()))
}

/// Parses `SIZE[@NODE]=[+]PAGES`.
fn pool_request(text: &str) -> Result<SettingRequest, Reason> {
    let (pool, pages) = split(text, "expected SIZE=PAGES, such as 2MiB=1000")?;
    let (size, node) = match pool.split_once('@') {
        Some((size, node)) => {
            let wrong = |_| Reason::new(format!("'{node}' is not a NUMA node number"));
            (size, Some(node.parse().map_err(wrong)?))
        }
        None => (pool, None),
    };
    let number = |text: &str| match text.parse::<u64>() {
        Ok(number) if !text.starts_with('+') => Ok(number),
        _ => Reason::err(format!("'{text}' is not a number of pages")),
    };
    let wanted = match pages.strip_prefix('+') {
        Some(more) => RequestedValue::More(Pages(number(more)?)),
        None => RequestedValue::Value(number(pages)?.to_string()),
    };
    Ok(request(Setting::Pool { page_size: size.parse()?, node }, wanted))
}

fn sized_value(text: &str) -> Result<SizedValue, Reason> {
    Ok(match text.split_once('=') {
        Some((size, value)) => SizedValue { page_size: Some(size.parse()?), value: value.to_owned() },
        None => SizedValue { page_size: None, value: text.to_owned() },
    })
}

/// Parses `NAME=NUMBER`.
fn khugepaged_request(text: &str) -> Result<SettingRequest, Reason> {
    let (knob, value) = split(text, "expected NAME=NUMBER, such as max_ptes_none=0")?;
    let knob: Knob = knob.parse()?;
    Ok(value_request(Setting::Khugepaged { knob }, value))
}

/// The texts before and after the first `=`.
fn split<'a>(text: &'a str, expected: &str) -> Result<(&'a str, &'a str), Reason> {
    text.split_once('=').ok_or_else(|| Reason::new(expected))
}

pub fn run(apply: &Apply, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let root = Root::live();
    let requests = apply.requests()?;
    if requests.is_empty() && (apply.plan.is_some() || !apply.command.is_empty()) {
        print("Nothing to change: the plan needs no pool and no setting.\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(!requests.is_empty(), "nothing to apply: give --plan or a setting, such as --pool 2MiB=1000");
    let floor = machine::floor(&root, apply.floor);
    let difference = Difference::read(&root, &requests, floor)?;
    let objected = !difference.objections.is_empty() && !apply.force;
    if apply.dry_run || objected || (difference.is_empty() && !apply.persist) {
        let state = match (apply.dry_run, objected) {
            (true, _) => State::DryRun,
            (_, true) => State::Refused,
            _ => State::Unchanged,
        };
        apply.show_difference(&difference, terminal)?;
        apply.show(&ApplyReport::not_applied(state, &difference), terminal)?;
        return Ok(if objected { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS });
    }
    apply.change(&root, &requests, floor, terminal)
}

impl Apply {
    fn requests(&self) -> anyhow::Result<Vec<SettingRequest>> {
        let mut requests = match &self.plan {
            Some(file) => plan_file::read(file)?,
            None if !self.command.is_empty() => {
                plan_file::changes_of(&plan::make(&Root::live(), &self.wishes, &self.command)?)?
            }
            None => Vec::new(),
        };
        requests.extend(self.explicit()?);
        Ok(requests)
    }

    /// The requests of the options for single settings.
    fn explicit(&self) -> anyhow::Result<Vec<SettingRequest>> {
        let mut requests = self.pool.clone();
        for SizedValue { page_size, value } in &self.overcommit {
            let page_size =
                page_size.context("--overcommit needs a page size: expected SIZE=PAGES, such as 2MiB=100")?;
            requests.push(value_request(Setting::Overcommit { page_size }, value));
        }
        for &SizedValue { page_size, ref value } in &self.thp_enabled {
            requests.push(value_request(Setting::ThpEnabled { page_size }, value));
        }
        for &SizedValue { page_size, ref value } in &self.shmem_enabled {
            requests.push(value_request(Setting::ShmemEnabled { page_size }, value));
        }
        requests.extend(self.thp_defrag.iter().map(|word| value_request(Setting::ThpDefrag, word)));
        requests.extend(self.khugepaged.iter().cloned());
        requests.extend(self.shm_group.map(|group| value_request(Setting::ShmGroup, group)));
        requests.extend(self.shmmax.map(|bytes| value_request(Setting::ShmMax, bytes.0)));
        requests.extend(self.shmall.map(|pages| value_request(Setting::ShmAll, pages)));
        Ok(requests)
    }

    /// Opens the journal, reads the difference again, and applies it.
    fn change(
        &self,
        root: &Root,
        requests: &[SettingRequest],
        floor: Bytes,
        terminal: &Terminal,
    ) -> anyhow::Result<ExitCode> {
        let interrupt = machine::install_signal_handlers()?;
        let mut writer = Writer::open(root, Path::new(STATE_DIR), "apply").map_err(|error| {
            let advice = "only root can change settings: use sudo, or --dry-run to print the changes";
            machine::needs_root(error, advice)
        })?;
        // While the journal is open, no other hugewise changes settings.
        let difference = Difference::read(root, requests, floor)?;
        self.show_difference(&difference, terminal)?;
        if !difference.objections.is_empty() && !self.force {
            self.show(&ApplyReport::not_applied(State::Refused, &difference), terminal)?;
            return Ok(ExitCode::from(NEGATIVE));
        }
        let files = self.persist.then(|| self.files(root, &difference)).transpose()?;
        let outcomes = match writer.carry_out(&difference, &interrupt) {
            Ok(outcomes) => outcomes,
            Err(error) => {
                machine::all_restored(&writer.put_back())?;
                if matches!(error, WriteError::Pool(Shortage::Interrupted)) {
                    return Ok(machine::after_signal(&interrupt));
                }
                let context = format!("apply failed, and all changes were undone{}", error.next_step());
                return Err(anyhow::Error::new(error).context(context));
            }
        };
        let short = outcomes.iter().any(|outcome| outcome.shortage.is_some());
        let mut report = ApplyReport::new(State::Applied, &difference, outcomes);
        if short && self.all_or_nothing {
            machine::all_restored(&writer.put_back())?;
            report.state = State::Undone;
        } else {
            match files.map(|files| files.write()).transpose() {
                Ok(written) => report.persisted = written.unwrap_or_default(),
                Err(error) => {
                    machine::all_restored(&writer.put_back())?;
                    return Err(anyhow::Error::new(error).context("all changes were undone"));
                }
            }
            writer.keep().context("all changes were undone")?;
        }
        if !report.persisted.is_empty() {
            report.notes.extend(contradictions(root, &difference, &report.persisted));
        }
        if !report.persisted.is_empty() && !has_tmpfiles(root) {
            report.notes.push(
                "systemd-tmpfiles is not installed: this machine does not apply tmpfiles.d at boot"
                    .to_owned(),
            );
        }
        self.show(&report, terminal)?;
        Ok(if short { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS })
    }

    /// The configuration files, with the requested values: at boot, also pools that are too small now can be
    /// allocated in full.
    fn files(&self, root: &Root, difference: &Difference) -> anyhow::Result<ConfigFiles> {
        let settings: Vec<(Setting, String)> =
            difference.changes.iter().map(|change| (change.setting, change.to.clone())).collect();
        ConfigFiles::prepare(root, &self.etc, &settings, self.overwrite).context("nothing was changed")
    }

    fn show_difference(&self, difference: &Difference, terminal: &Terminal) -> anyhow::Result<()> {
        if !self.json {
            print_styled(&difference_text(difference, terminal), terminal)?;
        }
        Ok(())
    }

    fn show(&self, report: &ApplyReport, terminal: &Terminal) -> anyhow::Result<()> {
        match self.json {
            true => print_json(&json::text(report)?)?,
            false => print_styled(&outcome_text(report, terminal), terminal)?,
        }
        Ok(())
    }
}

/// What sets one of the settings to another value at boot than the files just written.
fn contradictions(root: &Root, difference: &Difference, written: &[PathBuf]) -> Vec<String> {
    let mut notes = Vec::new();
    for BootSetting { setting, value, file } in at_boot::read(root) {
        let is_ours = written.iter().any(|ours| ours.strip_prefix("/").is_ok_and(|ours| ours == file));
        let is_default_pool = setting.ends_with("sys/vm/nr_hugepages");
        let wanted = difference.changes.iter().find(|change| match change.setting {
            Setting::Pool { node: None, page_size } => {
                is_default_pool && meminfo::read(root).default_size.known() == Some(&page_size)
            }
            other => other.path() == setting,
        });
        let Some(change) = wanted.filter(|change| !is_ours && value.as_ref() != Some(&change.to)) else {
            continue;
        };
        notes.push(format!(
            "/{} sets /{} to {} at boot, and the new files set {}: which one takes effect depends on their order; change or \
             remove that line",
            file.display(),
            setting.display(),
            value.as_deref().unwrap_or("an unknown value"),
            change.to
        ));
    }
    notes
}

fn has_tmpfiles(root: &Root) -> bool {
    ["usr/bin/systemd-tmpfiles", "bin/systemd-tmpfiles"].iter().any(|path| root.has_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read_as_people_write_them() -> anyhow::Result<()> {
        let size: PageSize = "2m".parse()?;
        let pool = |node, wanted| Ok(request(Setting::Pool { page_size: size, node }, wanted));
        assert_eq!(pool_request("2MiB=1000"), pool(None, RequestedValue::Value("1000".to_owned())));
        assert_eq!(pool_request("2m=+200"), pool(None, RequestedValue::More(Pages(200))));
        assert_eq!(pool_request("2M@1=0"), pool(Some(1), RequestedValue::Value("0".to_owned())));
        for text in ["", "2MiB", "2MiB=", "=5", "2MiB=-5", "2MiB=++5", "3MiB=5", "2MiB@=5", "2MiB@x=5"] {
            assert!(pool_request(text).is_err(), "{text}");
        }
        let always = |page_size| Ok(SizedValue { page_size, value: "always".to_owned() });
        assert_eq!(sized_value("always"), always(None));
        assert_eq!(sized_value("2m=always"), always(Some(size)));
        assert!(sized_value("x=always").is_err());
        assert!(khugepaged_request("max_ptes_none=0").is_ok());
        let refused = khugepaged_request("sleep=0");
        assert!(refused.is_err_and(|why| why.to_string().contains("scan_sleep_millisecs")));
        Ok(())
    }
}
