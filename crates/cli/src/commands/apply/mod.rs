//! `hugewise apply`: makes changes that stay, until `hugewise restore`.

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
    difference::{Difference, Request, Wanted},
    journal::{JournalError, STATE_DIR},
    persisted::Files,
    pool_growth::Shortage,
};
use hugewise_linux::{
    interrupt::Interrupt,
    root::Root,
    settings::{Knob, Setting},
    sys::process,
    units::{Bytes, PageSize, Pages},
};

use self::text::{Report, State, difference_text, outcome_text};
use super::plan::{self, Wishes};
use crate::{
    NEGATIVE, machine,
    output::terminal::{Terminal, print},
};

/// Change the machine's settings to what a plan or you ask for, and keep them so
///
/// The difference is shown first. Then every old value is written to the journal, the settings are
/// changed and read back. A pool grows in steps, with compaction between them where the kernel finds
/// too few pages; if it stays too small, what was got is kept and the cause is named. 'hugewise
/// restore' undoes everything; a reboot does, too, unless --persist.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Apply {
    /// A plan made by 'hugewise plan --json'; - reads it from standard input
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    plan: Option<PathBuf>,
    /// Pages in a pool, on all nodes or on one; + for so many more. May be given several times
    #[arg(long, value_name = "SIZE[@NODE]=[+]PAGES")]
    pool: Vec<PoolWish>,
    /// Pages that may be made on demand
    #[arg(long, value_name = "SIZE=PAGES")]
    overcommit: Vec<OfSize>,
    /// Transparent huge pages of all sizes that inherit, or of one: always, madvise, never, inherit
    #[arg(long, value_name = "[SIZE=]WORD")]
    thp_enabled: Vec<OfSize>,
    /// When a page fault waits for a huge page: always, defer, defer+madvise, madvise, never
    #[arg(long, value_name = "WORD")]
    thp_defrag: Option<String>,
    /// Transparent huge pages of shared memory: always, within_size, advise, never, inherit, …
    #[arg(long, value_name = "[SIZE=]WORD")]
    shmem_enabled: Vec<OfSize>,
    /// A setting of khugepaged: defrag, scan_sleep_millisecs, alloc_sleep_millisecs, pages_to_scan,
    /// max_ptes_none, max_ptes_swap, max_ptes_shared
    #[arg(long, value_name = "NAME=NUMBER")]
    khugepaged: Vec<KnobWish>,
    /// The group that may use SysV segments on huge pages
    #[arg(long, value_name = "GID")]
    shm_group: Option<u32>,
    /// The largest SysV segment
    #[arg(long, value_name = "SIZE")]
    shmmax: Option<Bytes>,
    /// All SysV segments together, in base pages
    #[arg(long, value_name = "PAGES")]
    shmall: Option<u64>,
    /// Show the difference, and change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Put everything back if a pool does not become as large as wanted
    #[arg(long)]
    all_or_nothing: bool,
    /// Do it against objections: too little memory would stay, or a setting is not as planned with
    #[arg(long)]
    force: bool,
    /// What must stay available beside the pools [default: a tenth of what is available now]
    #[arg(long, value_name = "SIZE")]
    floor: Option<Bytes>,
    /// Set it again at every boot: write sysctl.d/60-hugewise.conf and tmpfiles.d/hugewise.conf
    #[arg(long)]
    persist: bool,
    /// Replace these files even where hugewise did not write them, or they were edited since
    #[arg(long, requires = "persist")]
    overwrite: bool,
    /// Print JSON (schema hugewise.apply/1)
    #[arg(long)]
    json: bool,
    /// The folder of configuration files
    #[arg(long, value_name = "DIR", default_value = "/etc", hide = true)]
    etc: PathBuf,
    #[command(flatten)]
    wishes: Wishes,
    /// A java launch line, to be planned for first; the options above this say how
    #[arg(last = true)]
    command: Vec<String>,
}

const AFTER_HELP: &str = "\
Examples:
  hugewise apply --dry-run --pool 2MiB=1000           show what would change
  sudo hugewise apply --pool 2MiB=1000                1000 pages in the pool
  sudo hugewise apply --pool 2MiB=+200 --pool 1GiB@0=4
  sudo hugewise apply --thp-enabled madvise --shmem-enabled advise --khugepaged max_ptes_none=0
  sudo hugewise apply --thp-enabled 64KiB=madvise     one size alone
  sudo hugewise apply -- java -Xmx4g -jar app.jar     what this line needs, by 'hugewise plan'
  sudo hugewise apply --plan plan.json --all-or-nothing
  sudo hugewise apply --pool 2MiB=1000 --persist      at every boot, too
  sudo hugewise restore                               undo it

Exit status: 0 everything is as wanted; 1 a pool is smaller, or there are objections and nothing was
changed (with --dry-run: nothing would be); 2 wrong usage, or it could not be done and everything was
put back; 128 and the signal when interrupted, after putting everything back.";

/// `SIZE[@NODE]=[+]PAGES`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PoolWish {
    page_size: PageSize,
    node: Option<u32>,
    wanted: Wanted,
}

/// `[SIZE=]VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OfSize {
    page_size: Option<PageSize>,
    value: String,
}

/// `NAME=NUMBER`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KnobWish {
    knob: Knob,
    value: String,
}

impl FromStr for PoolWish {
    type Err = String;

    fn from_str(text: &str) -> Result<PoolWish, String> {
        let (pool, pages) = text.split_once('=').ok_or("write SIZE=PAGES, like 2MiB=1000")?;
        let (size, node) = match pool.split_once('@') {
            Some((size, node)) => {
                (size, Some(node.parse().map_err(|_| format!("'{node}' is not the number of a node"))?))
            }
            None => (pool, None),
        };
        let number = |text: &str| match text.parse::<u64>() {
            Ok(number) if !text.starts_with('+') => Ok(number),
            _ => Err(format!("'{text}' is not a number of pages")),
        };
        let wanted = match pages.strip_prefix('+') {
            Some(more) => Wanted::More(Pages(number(more)?)),
            None => Wanted::Value(number(pages)?.to_string()),
        };
        Ok(PoolWish { page_size: size.parse().map_err(|error| format!("{error}"))?, node, wanted })
    }
}

impl FromStr for OfSize {
    type Err = String;

    fn from_str(text: &str) -> Result<OfSize, String> {
        Ok(match text.split_once('=') {
            Some((size, value)) => {
                let page_size = size.parse().map_err(|error| format!("{error}"))?;
                OfSize { page_size: Some(page_size), value: value.to_owned() }
            }
            None => OfSize { page_size: None, value: text.to_owned() },
        })
    }
}

impl FromStr for KnobWish {
    type Err = String;

    fn from_str(text: &str) -> Result<KnobWish, String> {
        let (knob, value) = text.split_once('=').ok_or("write NAME=NUMBER, like max_ptes_none=0")?;
        Ok(KnobWish { knob: knob.parse()?, value: value.to_owned() })
    }
}

/// Runs the command.
pub fn run(apply: &Apply, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let root = Root::live();
    let requests = apply.requests()?;
    if requests.is_empty() && (apply.plan.is_some() || !apply.command.is_empty()) {
        print("Nothing is to be changed: the plan needs no pool and no setting.\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(!requests.is_empty(), "nothing to apply: name a --plan or a setting, like --pool 2MiB=1000");
    let floor = machine::floor(&root, apply.floor);
    let difference = Difference::read(&root, &requests, floor)?;
    let objected = !difference.objections.is_empty() && !apply.force;
    if apply.dry_run || objected || (difference.is_empty() && !apply.persist) {
        let state = match () {
            () if apply.dry_run => State::DryRun,
            () if objected => State::Refused,
            () => State::AsWanted,
        };
        apply.show_difference(&difference, terminal)?;
        let report = Report::of_nothing(state, &difference);
        apply.show(&report, terminal)?;
        return Ok(if objected { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS });
    }
    apply.change(&root, &requests, floor, terminal)
}

impl Apply {
    fn requests(&self) -> anyhow::Result<Vec<Request>> {
        let mut requests = match &self.plan {
            Some(file) => plan_file::read(file)?,
            None if !self.command.is_empty() => {
                plan_file::changes_of(&plan::make(&self.wishes, &self.command)?)
            }
            None => Vec::new(),
        };
        requests.extend(self.explicit()?);
        Ok(requests)
    }

    /// The settings that were named one by one.
    fn explicit(&self) -> anyhow::Result<Vec<Request>> {
        let mut wishes: Vec<(Setting, Wanted)> = Vec::new();
        for pool in &self.pool {
            let PoolWish { page_size, node, wanted } = pool.clone();
            wishes.push((Setting::Pool { page_size, node }, wanted));
        }
        let mut value = |setting, value: String| wishes.push((setting, Wanted::Value(value)));
        for OfSize { page_size, value: pages } in &self.overcommit {
            let page_size =
                page_size.context("--overcommit needs a page size: write SIZE=PAGES, like 2MiB=100")?;
            value(Setting::Overcommit { page_size }, pages.clone());
        }
        for OfSize { page_size, value: word } in &self.thp_enabled {
            value(Setting::ThpEnabled { page_size: *page_size }, word.clone());
        }
        for OfSize { page_size, value: word } in &self.shmem_enabled {
            value(Setting::ShmemEnabled { page_size: *page_size }, word.clone());
        }
        if let Some(word) = &self.thp_defrag {
            value(Setting::ThpDefrag, word.clone());
        }
        for KnobWish { knob, value: number } in &self.khugepaged {
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
        Ok(wishes.into_iter().map(|(setting, wanted)| Request { setting, wanted, seen: None }).collect())
    }

    /// Takes the journal, looks again, and makes the difference true.
    fn change(
        &self,
        root: &Root,
        requests: &[Request],
        floor: Bytes,
        terminal: &Terminal,
    ) -> anyhow::Result<ExitCode> {
        let interrupt = machine::watch()?;
        let mut writer = Writer::open(root, Path::new(STATE_DIR), "apply").map_err(advised)?;
        // From here on no other hugewise changes anything.
        let difference = Difference::read(root, requests, floor)?;
        self.show_difference(&difference, terminal)?;
        if !difference.objections.is_empty() && !self.force {
            self.show(&Report::of_nothing(State::Refused, &difference), terminal)?;
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
                    let helps = error.what_helps();
                    anyhow::Error::new(error)
                        .context(format!("it was broken off, and everything was put back{helps}"))
                });
            }
        };
        let short = outcomes.iter().any(|outcome| outcome.shortage.is_some());
        let mut report = Report::new(State::Kept, &difference, outcomes);
        if short && self.all_or_nothing {
            put_back(writer)?;
            report.put_back();
        } else {
            match files.map(|files| files.write()).transpose() {
                Ok(written) => report.persisted = written.unwrap_or_default(),
                Err(error) => {
                    put_back(writer)?;
                    return Err(anyhow::Error::new(error).context("the settings were put back"));
                }
            }
            writer.keep().context("the settings were put back")?;
        }
        if !report.persisted.is_empty() && !has_tmpfiles(root) {
            report.notes.push(
                "systemd-tmpfiles is not installed: nothing here reads tmpfiles.d at boot, sysctl.d alone may be"
                    .to_owned(),
            );
        }
        self.show(&report, terminal)?;
        Ok(if short { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS })
    }

    /// The configuration files as they shall be: what is wanted, for at boot all of it can be had.
    fn files(&self, root: &Root, difference: &Difference) -> anyhow::Result<Files> {
        let settings: Vec<(Setting, String)> =
            difference.changes.iter().map(|change| (change.setting, change.to.clone())).collect();
        Files::prepare(root, &self.etc, &settings, self.overwrite).context("nothing was changed")
    }

    fn show_difference(&self, difference: &Difference, terminal: &Terminal) -> anyhow::Result<()> {
        if !self.json {
            print(&difference_text(difference, terminal))?;
        }
        Ok(())
    }

    fn show(&self, report: &Report, terminal: &Terminal) -> anyhow::Result<()> {
        if self.json {
            print(&(serde_json::to_string_pretty(report)? + "\n"))?;
        } else {
            print(&outcome_text(report, terminal))?;
        }
        Ok(())
    }
}

/// Undoes what was done so far, and says so where that failed.
fn put_back(writer: Writer) -> anyhow::Result<()> {
    let restored = writer.put_back();
    ensure!(restored.failed.is_empty(), "{}", machine::failures(&restored));
    Ok(())
}

/// The exit status after a signal.
fn interrupted(error: &WriteError, interrupt: &Interrupt) -> Option<ExitCode> {
    matches!(error, WriteError::Pool(Shortage::Interrupted)).then(|| machine::after_signal(interrupt))
}

/// Why the journal was not had, with the next step.
fn advised(error: JournalError) -> anyhow::Error {
    let error = anyhow::Error::new(error);
    if process::is_root() {
        error
    } else {
        error.context("only root can change settings: use sudo; --dry-run shows the difference without")
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
        let pool = |node, wanted| Ok(PoolWish { page_size: size, node, wanted });
        assert_eq!("2MiB=1000".parse(), pool(None, Wanted::Value("1000".to_owned())));
        assert_eq!("2m=+200".parse(), pool(None, Wanted::More(Pages(200))));
        assert_eq!("2M@1=0".parse(), pool(Some(1), Wanted::Value("0".to_owned())));
        for text in ["", "2MiB", "2MiB=", "=5", "2MiB=-5", "2MiB=++5", "3MiB=5", "2MiB@=5", "2MiB@x=5"] {
            assert!(text.parse::<PoolWish>().is_err(), "{text}");
        }
        assert_eq!("always".parse(), Ok(OfSize { page_size: None, value: "always".to_owned() }));
        assert_eq!("2m=always".parse(), Ok(OfSize { page_size: Some(size), value: "always".to_owned() }));
        assert!("x=always".parse::<OfSize>().is_err());
        assert!("max_ptes_none=0".parse::<KnobWish>().is_ok());
        assert!("sleep=0".parse::<KnobWish>().is_err_and(|why| why.contains("scan_sleep_millisecs")));
        Ok(())
    }
}
