//! The plan of a MariaDB server: several buffers, each on pages of the pools or on base pages.

use hugewise_databases::mariadb::{
    Server, Settings, Start,
    line::{MariadbLine, NAMES},
};
use hugewise_jvm::demand::RegionDemand;
use hugewise_linux::{
    action::Action,
    facts::Facts,
    hugepages::{backing::Backing, page_sizes::PageSizes},
    rehearsal::SimulatedPools,
    shell,
    units::{Bytes, PageSize},
};

use crate::{
    decide::{self, ObservedStart},
    plan::{Database, Plan, PoolPlan, StartOutcome, Verdict},
    planner::{self, DatabasePlanError, PlanRequest},
    target::{self, TargetSource},
};

/// Option with which the server requests pages of pools.
const OPTION: &str = "--large-pages";

/// The readings of a plan.
struct Readings {
    settings: Settings,
    complaints: Vec<String>,
    has_unread_files: bool,
    /// User that the start must name; `None` if the line does, or if it needs none.
    user: Option<String>,
    /// Starts with sufficient pools, at different addresses.
    planned: Vec<Start>,
    /// Starts with the pools as they are, at the same addresses; `None` if the line requests no pages.
    now: Option<Vec<Start>>,
}

/// Plans for a server on the machine of these facts; the server is rehearsed on this machine.
pub fn plan(
    command: &[String],
    line: &MariadbLine,
    wanted: &PlanRequest,
    facts: &Facts,
    sizes: &PageSizes,
) -> Result<Plan, DatabasePlanError> {
    let default = planner::checked_request("MariaDB", wanted, facts, sizes)?;
    let target = wanted.backing.and_then(Backing::named_size).unwrap_or(default);
    if let Some(missing) = sizes.missing(Backing::Hugetlb(Some(target))) {
        return Err(DatabasePlanError::Impossible(missing));
    }
    let server = Server::query(line, sizes)?;
    let planned = server.starts(
        sizes,
        &sufficient_pools(
            decide::available_pools(facts, target::bound_nodes(command, facts).as_ref()),
            target,
        ),
    )?;
    if let Some(failed) = planned.iter().find(|start| !start.is_ready) {
        return Err(DatabasePlanError::Impossible(format!(
            "{} does not start: {}",
            line.program,
            failed.messages.join(" / ")
        )));
    }
    let (regions, pools) = demand(&planned, wanted, facts, sizes);
    if target > default && !regions.iter().any(|region| region.page_size_bytes == target) {
        let why = format!("MariaDB uses pages of {target} for buffers of this size or more, and has none");
        return Err(DatabasePlanError::Impossible(why));
    }
    let mut available = decide::available_pools(facts, target::bound_nodes(command, facts).as_ref());
    decide::subtract(&mut available, &planner::taken_by_others(&pools, wanted.instances));
    let now = server.settings.large_pages.then(|| server.starts(sizes, &available)).transpose()?;
    let user = server.account.as_ref().filter(|_| !server.names_user).map(|account| account.name.clone());
    let Server { settings, complaints, has_unread_files, .. } = server;
    let readings = Readings { settings, complaints, has_unread_files, user, planned, now };
    Ok(decide(command, &readings, (regions, pools), wanted, facts, sizes))
}

/// The pools with pages of `target` and of all smaller sizes without a limit. The server prefers larger pages, if a
/// pool has enough of them.
fn sufficient_pools(mut available: SimulatedPools, target: PageSize) -> SimulatedPools {
    available.retain(|size, _| *size > target);
    available
}

/// Buffers of one server at the addresses that need the fewest and the most pages, and pools for all instances.
fn demand(
    planned: &[Start],
    wanted: &PlanRequest,
    facts: &Facts,
    sizes: &PageSizes,
) -> (Vec<RegionDemand>, Vec<PoolPlan>) {
    let mut regions: Vec<RegionDemand> = Vec::new();
    for (n, start) in planned.iter().enumerate() {
        let found = self::regions(start);
        let is_same = |one: &RegionDemand, other: &RegionDemand| {
            (&one.name, one.page_size_bytes) == (&other.name, other.page_size_bytes)
        };
        for known in &mut regions {
            let bytes =
                found.iter().find(|found| is_same(known, found)).map_or(Bytes::ZERO, |found| found.bytes);
            known.bytes_at_start = known.bytes_at_start.min(bytes);
            known.bytes = known.bytes.max(bytes);
        }
        let unknown = found.into_iter().filter(|found| !regions.iter().any(|known| is_same(known, found)));
        let unknown: Vec<RegionDemand> = unknown
            .map(
                |region| if n == 0 { region } else { RegionDemand { bytes_at_start: Bytes::ZERO, ..region } },
            )
            .collect();
        regions.extend(unknown);
    }
    let pools = decide::pools(&regions, None, wanted.instances, wanted.node, facts, sizes);
    (regions, pools)
}

fn regions(start: &Start) -> Vec<RegionDemand> {
    let region = |region: &hugewise_databases::mariadb::Region| RegionDemand {
        name: region.name.to_owned(),
        page_size_bytes: region.page_size,
        bytes_at_start: region.bytes,
        bytes: region.bytes,
    };
    start.regions.iter().map(region).collect()
}

/// The plan that follows from the readings and the [`demand`] of their starts.
fn decide(
    command: &[String],
    readings: &Readings,
    (regions, pools): (Vec<RegionDemand>, Vec<PoolPlan>),
    wanted: &PlanRequest,
    facts: &Facts,
    sizes: &PageSizes,
) -> Plan {
    let Readings { settings, user, .. } = readings;
    let options: Vec<String> = if settings.large_pages { Vec::new() } else { vec![OPTION.to_owned()] };
    let mut notes = planner::limits(&pools, facts);
    if !readings.complaints.is_empty() {
        notes.push(format!(
            "mariadbd, queried without its plugins, reports: {}",
            readings.complaints.join(" / ")
        ));
    }
    if readings.has_unread_files {
        let note =
            "root reads option files that the user of the server cannot read: their options do not count";
        notes.push(note.to_owned());
    }
    if regions.iter().any(|region| region.bytes_at_start < region.bytes) {
        notes.push(
            "InnoDB starts its buffer pool at a multiple of 8MiB, and requests more memory if the kernel maps it \
             elsewhere: the address, and with it the number of pages, is another one at each start"
                .to_owned(),
        );
    }
    Plan {
        schema: "hugewise.plan/2".to_owned(),
        command: command.to_vec(),
        backing: wanted.backing.unwrap_or(Backing::Hugetlb(None)),
        actions: decide::actions(
            &pools,
            &[],
            "use a smaller innodb_buffer_pool_size",
            start(command, &options, user.as_deref()),
            facts,
        ),
        options,
        instances: wanted.instances,
        settings: Vec::new(),
        memory: decide::memory(&pools, facts),
        target: Some(target::of(command, wanted.source, facts, sizes)),
        java: None,
        heap: None,
        database: Some(database(settings, &regions, sizes)),
        direct_memory_bytes: None,
        default_page_size_bytes: sizes.default_hugetlb,
        verdict: match settings.large_pages && wanted.source == TargetSource::Given {
            true => decide::unknown_pools(),
            false => verdict(readings, &regions, facts, sizes),
        },
        regions,
        off_heap: None,
        pools,
        notes,
    }
}

fn database(settings: &Settings, regions: &[RegionDemand], sizes: &PageSizes) -> Database {
    let tables = |page_size: &dyn Fn(&RegionDemand) -> PageSize| {
        let entries = regions.iter().map(|region| region.bytes.pages_needed(page_size(region)));
        planner::page_tables(entries.sum(), sizes)
    };
    Database {
        name: "MariaDB".to_owned(),
        version: settings.version.clone(),
        huge_pages: if settings.large_pages { "on" } else { "off" }.to_owned(),
        max_connections: settings.max_connections,
        // Each connection is a thread.
        processes: 1,
        page_tables_on_base_bytes: tables(&|_| sizes.base),
        page_tables_on_huge_bytes: tables(&|region| region.page_size_bytes),
    }
}

/// The start of a server with `options`, as `user` if the line names none.
fn start(command: &[String], options: &[String], user: Option<&str>) -> Action {
    // A wrapper may change the user.
    let is_direct = planner::is_direct(command, &NAMES);
    let as_user = user.filter(|_| is_direct).map(|user| format!("--user={user}"));
    let changed: Vec<String> = command.iter().chain(options).cloned().chain(as_user).collect();
    let start = match options.is_empty() {
        true => Action::new("Start MariaDB"),
        false => Action::new(format!(
            "Start MariaDB with {}, or set large-pages in its option file",
            options.join(" ")
        )),
    };
    start.by(shell::line(&changed)).verified_by("hugewise inspect PID")
}

/// The result of starting the unchanged line now: the same one at all addresses, or unknown.
fn verdict(readings: &Readings, regions: &[RegionDemand], facts: &Facts, sizes: &PageSizes) -> Verdict {
    let seen = |start: Option<&Start>, got: &[RegionDemand], demand: &[RegionDemand]| {
        let observed = ObservedStart {
            program: "MariaDB",
            asks_explicit: start.is_some(),
            asks_thp: false,
            started: start.is_none_or(|start| start.is_ready),
            got,
            messages: start.map(|start| start.messages.clone()).unwrap_or_default(),
        };
        decide::verdict(observed, demand, facts, sizes)
    };
    let Some(now) = &readings.now else { return seen(None, &[], regions) };
    let pairs = now.iter().zip(&readings.planned);
    let verdicts = pairs.map(|(now, planned)| seen(Some(now), &self::regions(now), &self::regions(planned)));
    let mut verdicts: Vec<Verdict> = verdicts.collect();
    let huge = |verdict: &Verdict| verdict.regions.iter().map(|region| region.huge_bytes).sum::<Bytes>();
    verdicts.sort_by_key(huge);
    let mut summaries: Vec<String> = Vec::new();
    for verdict in &verdicts {
        if !summaries.contains(&verdict.summary) {
            summaries.push(verdict.summary.clone());
        }
    }
    let is_sure = verdicts.windows(2).all(|pair| pair[0].outcome == pair[1].outcome);
    let mut worst = verdicts.swap_remove(0);
    if !is_sure {
        worst.outcome = StartOutcome::Unknown;
    }
    worst.summary = summaries.join("; or, at other addresses of the buffer pool: ");
    worst
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use hugewise_databases::mariadb::Region;
    use hugewise_linux::units::Pages;

    use super::*;
    use crate::testing::machine;

    type TestResult = Result<(), Box<dyn Error>>;

    const COMMAND: [&str; 3] = ["mariadbd", "--datadir=/data", "--large-pages"];

    /// A start that got these sizes on pages of 2 MiB.
    fn start(key_buffer: &str, pool: &str, log: &str) -> Result<Start, Box<dyn Error>> {
        let named =
            [("MyISAM key buffer", key_buffer), ("InnoDB buffer pool", pool), ("InnoDB log buffers", log)];
        let region = |(name, bytes): (&'static str, &str)| -> Result<Region, Box<dyn Error>> {
            Ok(Region { name, page_size: "2m".parse()?, bytes: bytes.parse()? })
        };
        let regions = named.into_iter().filter(|(_, bytes)| *bytes != "0").map(region);
        Ok(Start { is_ready: true, regions: regions.collect::<Result<_, _>>()?, messages: Vec::new() })
    }

    /// A plan of a server whose buffer pool takes up to 3 pages more at some addresses.
    fn planned(command: &[&str], now: Option<Vec<Start>>, instances: u32) -> Result<Plan, Box<dyn Error>> {
        let (facts, sizes) = machine(200, 120)?;
        let wanted = PlanRequest { instances, ..PlanRequest::default() };
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let mut settings = Settings::default();
        (settings.large_pages, settings.max_connections) = (now.is_some(), 100);
        let planned = vec![start("106m", "128m", "32m")?, start("106m", "134m", "32m")?];
        let complaints = vec!["[ERROR] unknown variable".to_owned()];
        let user = Some("mysql".to_owned());
        let readings = Readings { settings, complaints, has_unread_files: true, user, planned, now };
        let demand = demand(&readings.planned, &wanted, &facts, &sizes);
        Ok(decide(&command, &readings, demand, &wanted, &facts, &sizes))
    }

    #[test]
    fn the_address_that_needs_the_most_pages_counts() -> TestResult {
        for instances in [1, 2] {
            let plan = planned(&COMMAND, None, instances)?;
            let [pool] = &plan.pools[..] else { return Err(format!("{:#?}", plan.pools).into()) };
            let all = |pages: u64| Pages(pages * u64::from(instances));
            assert_eq!((pool.pages_at_start, pool.pages_needed), (all(53 + 64 + 16), all(53 + 67 + 16)));
            assert_eq!(pool.pages_to_add, all(136).saturating_sub(Pages(120)));
            assert_eq!(plan.regions[1].bytes, "134m".parse()?);
            for said in ["multiple of 8MiB", "unknown variable", "root reads option files"] {
                assert!(plan.notes.iter().any(|note| note.contains(said)), "{:?}", plan.notes);
            }
        }
        Ok(())
    }

    #[test]
    fn a_result_that_depends_on_the_address_is_unknown() -> TestResult {
        let [all, more] = [start("106m", "128m", "32m")?, start("106m", "134m", "32m")?];
        let no_log = start("106m", "134m", "16m")?;
        let no_pool = start("106m", "0", "0")?;
        for (now, outcome, huge, said) in [
            ([all.clone(), more], StartOutcome::GetsHugePages, "266m", "every region gets"),
            ([all.clone(), no_log.clone()], StartOutcome::Unknown, "256m", "or, at other addresses"),
            (
                [no_pool.clone(), no_pool.clone()],
                StartOutcome::FallsBack,
                "106m",
                "smaller pages: InnoDB buffer pool",
            ),
            ([no_pool.clone(), no_log], StartOutcome::FallsBack, "106m", "or, at other addresses"),
            (
                [Start { is_ready: false, ..no_pool.clone() }, all],
                StartOutcome::Unknown,
                "106m",
                "does not start",
            ),
        ] {
            let verdict = planned(&COMMAND, Some(now.to_vec()), 1)?.verdict;
            assert_eq!(verdict.outcome, outcome, "{verdict:#?}");
            assert!(verdict.summary.contains(said), "{verdict:#?}");
            let sum: Bytes = verdict.regions.iter().map(|region| region.huge_bytes).sum();
            assert_eq!(sum, huge.parse()?, "{verdict:#?}");
        }
        Ok(())
    }

    #[test]
    fn the_option_and_the_user_are_added_where_they_are_missing() -> TestResult {
        let command = |plan: &Plan| plan.actions.last().and_then(|start| start.command.clone());
        let plan = planned(&COMMAND[..2], None, 1)?;
        assert_eq!(
            (plan.verdict.outcome, plan.options.join(" ").as_str()),
            (StartOutcome::DoesNotAsk, OPTION)
        );
        let expected = "mariadbd --datadir=/data --large-pages --user=mysql";
        assert_eq!(command(&plan).as_deref(), Some(expected));
        let now = vec![start("106m", "128m", "32m")?, start("106m", "134m", "32m")?];
        let plan = planned(&[&["runuser", "-u", "mysql", "--"], &COMMAND[..]].concat(), Some(now), 1)?;
        assert!(plan.options.is_empty());
        assert_eq!(
            command(&plan).as_deref(),
            Some("runuser -u mysql -- mariadbd --datadir=/data --large-pages")
        );
        let database = plan.database.ok_or("no database")?;
        assert_eq!((database.huge_pages.as_str(), database.processes), ("on", 1));
        assert_eq!(database.page_tables_on_base_bytes, "544k".parse()?);
        assert_eq!(database.page_tables_on_huge_bytes, "4k".parse()?);
        Ok(())
    }

    #[test]
    fn only_pages_up_to_those_of_the_plan_have_no_limit() -> TestResult {
        let (small, large): (PageSize, PageSize) = ("2m".parse()?, "1g".parse()?);
        let available: SimulatedPools = [(small, Pages(7)), (large, Pages(1))].into();
        assert_eq!(sufficient_pools(available.clone(), small), [(large, Pages(1))].into());
        assert_eq!(sufficient_pools(available, large), SimulatedPools::new());
        Ok(())
    }
}
