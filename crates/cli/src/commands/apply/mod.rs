//! `hugewise apply`: changes settings until `hugewise restore`.

pub mod plan_file;
pub mod text;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
};

use anyhow::{Context, ensure};
use clap::Args;
use hugewise_changes::{
    apply::{WriteError, Writer},
    difference::{Difference, RequestedValue, SettingRequest},
    journal::{JournalError, STATE_DIR},
    persisted::ConfigFiles,
    pool_growth::Shortage,
};
use hugewise_linux::{
    interrupt::Interrupt,
    json,
    root::Root,
    settings::{Knob, Setting},
    sys::process,
    units::{Bytes, PageSize, Pages},
};

use self::text::{ApplyReport, State, difference_text, outcome_text};
use super::plan::{self, PlanOptions};
use crate::{
    NEGATIVE, machine,
    output::terminal::{Terminal, print},
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
    #[arg(long, value_name = "SIZE[@NODE]=[+]PAGES")]
    pool: Vec<PoolRequest>,
    /// Surplus pages that may be allocated beyond the pool (nr_overcommit_hugepages)
    #[arg(long, value_name = "SIZE=PAGES")]
    overcommit: Vec<SizedValue>,
    /// THP mode: always, madvise or never; with SIZE also inherit
    #[arg(long, value_name = "[SIZE=]WORD")]
    thp_enabled: Vec<SizedValue>,
    /// When page faults wait for huge pages: always, defer, defer+madvise, madvise, never
    #[arg(long, value_name = "WORD")]
    thp_defrag: Option<String>,
    /// THP mode of shared memory: always, within_size, advise, never, …; with SIZE also inherit
    #[arg(long, value_name = "[SIZE=]WORD")]
    shmem_enabled: Vec<SizedValue>,
    /// khugepaged setting: defrag, scan_sleep_millisecs, alloc_sleep_millisecs, pages_to_scan,
    /// max_ptes_none, max_ptes_swap, max_ptes_shared
    #[arg(long, value_name = "NAME=NUMBER")]
    khugepaged: Vec<KhugepagedRequest>,
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

/// `SIZE[@NODE]=[+]PAGES`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PoolRequest {
    page_size: PageSize,
    node: Option<u32>,
    wanted: RequestedValue,
}

/// `[SIZE=]VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SizedValue {
    page_size: Option<PageSize>,
    value: String,
}

/// `NAME=NUMBER`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KhugepagedRequest {
    knob: Knob,
    value: String,
}

impl FromStr for PoolRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<PoolRequest, String> {
        let (pool, pages) = text.split_once('=').ok_or("expected SIZE=PAGES, such as 2MiB=1000")?;
        let (size, node) = match pool.split_once('@') {
            Some((size, node)) => {
                (size, Some(node.parse().map_err(|_| format!("'{node}' is not a NUMA node number"))?))
            }
            None => (pool, None),
        };
        let number = |text: &str| match text.parse::<u64>() {
            Ok(number) if !text.starts_with('+') => Ok(number),
            _ => Err(format!("'{text}' is not a number of pages")),
        };
        let wanted = match pages.strip_prefix('+') {
            Some(more) => RequestedValue::More(Pages(number(more)?)),
            None => RequestedValue::Value(number(pages)?.to_string()),
        };
        Ok(PoolRequest { page_size: size.parse().map_err(|error| format!("{error}"))?, node, wanted })
    }
}

impl FromStr for SizedValue {
    type Err = String;

    fn from_str(text: &str) -> Result<SizedValue, String> {
        Ok(match text.split_once('=') {
            Some((size, value)) => {
                let page_size = size.parse().map_err(|error| format!("{error}"))?;
                SizedValue { page_size: Some(page_size), value: value.to_owned() }
            }
            None => SizedValue { page_size: None, value: text.to_owned() },
        })
    }
}

impl FromStr for KhugepagedRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<KhugepagedRequest, String> {
        let (knob, value) = text.split_once('=').ok_or("expected NAME=NUMBER, such as max_ptes_none=0")?;
        Ok(KhugepagedRequest { knob: knob.parse()?, value: value.to_owned() })
    }
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
        let state = match () {
            () if apply.dry_run => State::DryRun,
            () if objected => State::Refused,
            () => State::Unchanged,
        };
        apply.show_difference(&difference, terminal)?;
        let report = ApplyReport::not_applied(state, &difference);
        apply.show(&report, terminal)?;
        return Ok(if objected { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS });
    }
    apply.change(&root, &requests, floor, terminal)
}

impl Apply {
    fn requests(&self) -> anyhow::Result<Vec<SettingRequest>> {
        let mut requests = match &self.plan {
            Some(file) => plan_file::read(file)?,
            None if !self.command.is_empty() => {
                plan_file::changes_of(&plan::make(&Root::live(), &self.wishes, &self.command)?)
            }
            None => Vec::new(),
        };
        requests.extend(self.explicit()?);
        Ok(requests)
    }

    /// The requests of the options for single settings.
    fn explicit(&self) -> anyhow::Result<Vec<SettingRequest>> {
        let mut wishes: Vec<(Setting, RequestedValue)> = Vec::new();
        for pool in &self.pool {
            let PoolRequest { page_size, node, wanted } = pool.clone();
            wishes.push((Setting::Pool { page_size, node }, wanted));
        }
        let mut value = |setting, value: String| wishes.push((setting, RequestedValue::Value(value)));
        for SizedValue { page_size, value: pages } in &self.overcommit {
            let page_size =
                page_size.context("--overcommit needs a page size: expected SIZE=PAGES, such as 2MiB=100")?;
            value(Setting::Overcommit { page_size }, pages.clone());
        }
        for SizedValue { page_size, value: word } in &self.thp_enabled {
            value(Setting::ThpEnabled { page_size: *page_size }, word.clone());
        }
        for SizedValue { page_size, value: word } in &self.shmem_enabled {
            value(Setting::ShmemEnabled { page_size: *page_size }, word.clone());
        }
        if let Some(word) = &self.thp_defrag {
            value(Setting::ThpDefrag, word.clone());
        }
        for KhugepagedRequest { knob, value: number } in &self.khugepaged {
            value(Setting::Khugepaged { knob: *knob }, number.clone());
        }
        let shm = [
            (Setting::ShmGroup, self.shm_group.map(u64::from)),
            (Setting::ShmMax, self.shmmax.map(|bytes| bytes.0)),
            (Setting::ShmAll, self.shmall),
        ];
        for (setting, number) in shm {
            if let Some(number) = number {
                value(setting, number.to_string());
            }
        }
        Ok(wishes
            .into_iter()
            .map(|(setting, wanted)| SettingRequest { setting, wanted, seen: None })
            .collect())
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
        let mut writer = Writer::open(root, Path::new(STATE_DIR), "apply").map_err(advised)?;
        // While the journal is open, no other hugewise changes settings.
        let difference = Difference::read(root, requests, floor)?;
        self.show_difference(&difference, terminal)?;
        if !difference.objections.is_empty() && !self.force {
            self.show(&ApplyReport::not_applied(State::Refused, &difference), terminal)?;
            return Ok(ExitCode::from(NEGATIVE));
        }
        let files = match self.persist {
            true => Some(self.files(root, &difference)?),
            false => None,
        };
        let outcomes = match writer.carry_out(&difference, &interrupt) {
            Ok(outcomes) => outcomes,
            Err(error) => {
                put_back(writer)?;
                return interrupted(&error, &interrupt).ok_or_else(|| {
                    let helps = error.next_step();
                    anyhow::Error::new(error)
                        .context(format!("apply failed, and all changes were undone{helps}"))
                });
            }
        };
        let short = outcomes.iter().any(|outcome| outcome.shortage.is_some());
        let mut report = ApplyReport::new(State::Applied, &difference, outcomes);
        if short && self.all_or_nothing {
            put_back(writer)?;
            report.put_back();
        } else {
            match files.map(|files| files.write()).transpose() {
                Ok(written) => report.persisted = written.unwrap_or_default(),
                Err(error) => {
                    put_back(writer)?;
                    return Err(anyhow::Error::new(error).context("all changes were undone"));
                }
            }
            writer.keep().context("all changes were undone")?;
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
            print(&difference_text(difference, terminal))?;
        }
        Ok(())
    }

    fn show(&self, report: &ApplyReport, terminal: &Terminal) -> anyhow::Result<()> {
        if self.json {
            print(&json::text(report)?)?;
        } else {
            print(&outcome_text(report, terminal))?;
        }
        Ok(())
    }
}

/// Undoes the changes made so far; an error if that failed for any of them.
fn put_back(writer: Writer) -> anyhow::Result<()> {
    let restored = writer.put_back();
    ensure!(restored.failed.is_empty(), "{}", machine::failures(&restored));
    Ok(())
}

fn interrupted(error: &WriteError, interrupt: &Interrupt) -> Option<ExitCode> {
    matches!(error, WriteError::Pool(Shortage::Interrupted)).then(|| machine::after_signal(interrupt))
}

/// The error of opening the journal, with the next step.
fn advised(error: JournalError) -> anyhow::Error {
    let error = anyhow::Error::new(error);
    if process::is_root() {
        error
    } else {
        error.context("only root can change settings: use sudo, or --dry-run to print the changes")
    }
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
        let pool = |node, wanted| Ok(PoolRequest { page_size: size, node, wanted });
        assert_eq!("2MiB=1000".parse(), pool(None, RequestedValue::Value("1000".to_owned())));
        assert_eq!("2m=+200".parse(), pool(None, RequestedValue::More(Pages(200))));
        assert_eq!("2M@1=0".parse(), pool(Some(1), RequestedValue::Value("0".to_owned())));
        for text in ["", "2MiB", "2MiB=", "=5", "2MiB=-5", "2MiB=++5", "3MiB=5", "2MiB@=5", "2MiB@x=5"] {
            assert!(text.parse::<PoolRequest>().is_err(), "{text}");
        }
        assert_eq!("always".parse(), Ok(SizedValue { page_size: None, value: "always".to_owned() }));
        assert_eq!("2m=always".parse(), Ok(SizedValue { page_size: Some(size), value: "always".to_owned() }));
        assert!("x=always".parse::<SizedValue>().is_err());
        assert!("max_ptes_none=0".parse::<KhugepagedRequest>().is_ok());
        assert!(
            "sleep=0".parse::<KhugepagedRequest>().is_err_and(|why| why.contains("scan_sleep_millisecs"))
        );
        Ok(())
    }
}
