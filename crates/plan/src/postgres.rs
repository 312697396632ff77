//! The plan of a PostgreSQL server: its shared memory is one mapping, on pages of one pool or on base pages.

use hugewise_databases::postgres::{
    HugePages, RunningServer, Server, Settings,
    line::{NAMES, PostgresLine},
};
use hugewise_jvm::demand::RegionDemand;
use hugewise_linux::{
    action::Action,
    facts::Facts,
    hugepages::{backing::Backing, page_sizes::PageSizes},
    reading::Reading,
    root::Root,
    shell,
    units::{PageSize, Pages},
};

use crate::{
    decide::{self, ObservedStart},
    plan::{Database, Plan},
    planner::{self, DatabasePlanError, PlanRequest},
    target::{self, TargetSource},
};

/// Name of the region.
const SHARED_MEMORY: &str = "shared memory";

/// The readings of a plan.
struct Readings {
    settings: Settings,
    /// User as whom the server starts; `None` if that is the present one.
    user: Option<String>,
    /// The server of this data folder, if it runs.
    running: Option<RunningServer>,
    /// Page size of the plan, and its pages.
    planned: (PageSize, Pages),
    /// Page size that the unchanged line requests, and its pages.
    requested: (PageSize, Pages),
}

/// Plans for a server on the machine of these facts; the server is queried on this machine.
pub fn plan(
    command: &[String],
    line: &PostgresLine,
    wanted: &PlanRequest,
    facts: &Facts,
    sizes: &PageSizes,
) -> Result<Plan, DatabasePlanError> {
    let default = planner::checked_request("PostgreSQL", wanted, facts, sizes)?;
    let server = Server::query(line)?;
    let requested = server.settings.huge_page_size.unwrap_or(default);
    let planned = wanted.backing.and_then(Backing::named_size).unwrap_or(requested);
    if let Some(missing) = sizes.missing(Backing::Hugetlb(Some(planned))) {
        return Err(DatabasePlanError::Impossible(missing));
    }
    let running = server.running(&Root::live());
    let pages = |size: PageSize| match running {
        None => server.pages(size),
        Some(RunningServer { shared_memory: Some((bytes, _)), .. }) => Ok(bytes.pages_needed(size)),
        // The server refuses the question, with its reason.
        Some(_) => server.pages(size),
    };
    let requested = (requested, pages(requested)?);
    let planned = (planned, if planned == requested.0 { requested.1 } else { pages(planned)? });
    let user = server.data.owner.map(|owner| owner.name);
    let readings = Readings { settings: server.settings, user, running, planned, requested };
    Ok(decide(command, &readings, wanted, facts, sizes))
}

/// The plan that follows from the readings.
fn decide(
    command: &[String],
    readings: &Readings,
    wanted: &PlanRequest,
    facts: &Facts,
    sizes: &PageSizes,
) -> Plan {
    let Readings { settings, user, running, planned, requested } = readings;
    let mut facts = facts.clone();
    give_back(&mut facts, *running);
    let facts = &facts;
    let region = |(size, pages): (PageSize, Pages)| RegionDemand {
        name: SHARED_MEMORY.to_owned(),
        page_size_bytes: size,
        bytes_at_start: pages * size,
        bytes: pages * size,
    };
    let regions = vec![region(*planned)];
    let pools = decide::pools(&regions, None, wanted.instances, wanted.node, facts, sizes);

    let mut available = decide::available_pools(facts, target::bound_nodes(command, facts).as_ref());
    decide::subtract(&mut available, &planner::taken_by_others(&pools, wanted.instances));
    let suffices =
        settings.is_mapped && available.get(&requested.0).is_some_and(|pages| *pages >= requested.1);
    let asks = settings.huge_pages != HugePages::Off;
    let got = if asks && suffices { vec![region(*requested)] } else { Vec::new() };
    let seen = ObservedStart {
        program: "PostgreSQL",
        asks_explicit: asks,
        asks_thp: false,
        started: settings.huge_pages != HugePages::On || suffices,
        got: &got,
        messages: Vec::new(),
    };
    let mut verdict = decide::verdict(seen, &[region(*requested)], facts, sizes);
    if asks && wanted.source == TargetSource::Given {
        verdict = decide::unknown_pools();
    }
    if asks && !settings.is_mapped {
        verdict.summary += ": only shared memory of type mmap can be on huge pages (shared_memory_type)";
    }

    let backing = wanted.backing.unwrap_or(Backing::Hugetlb(settings.huge_page_size));
    let options = options(settings, planned.0, requested.0);
    let changed = [command, &options].concat();
    // Without a wrapper that changes it, the user is root, as whom the server refuses to start.
    let is_direct = planner::is_direct(command, &NAMES);
    let as_user = user.iter().filter(|_| is_direct).flat_map(|user| ["runuser", "-u", user, "--"]);
    let changed: Vec<String> = as_user.map(str::to_owned).chain(changed).collect();
    let start = match options.is_empty() {
        true => Action::new("Start PostgreSQL"),
        false => Action::new(format!(
            "Start PostgreSQL with {}, or set this in its configuration; with huge_pages=on it does not fall back",
            options.join(" ")
        )),
    };
    let start = start.by(shell::line(&changed)).verified_by("hugewise inspect PID");
    let smaller = "use smaller shared_buffers";
    let mut notes = planner::limits(&pools, facts);
    notes.extend(running.map(|server| {
        format!(
            "this server runs as process {}: the plan counts the size of its shared memory, and its pages as \
             available after a stop; options that it was not started with do not count",
            server.pid
        )
    }));
    let tables = |size: PageSize| planner::page_tables((planned.1 * planned.0).pages_needed(size), sizes);
    Plan {
        schema: "hugewise.plan/2".to_owned(),
        command: command.to_vec(),
        backing,
        actions: decide::actions(&pools, &[], smaller, start, facts),
        options,
        instances: wanted.instances,
        settings: Vec::new(),
        memory: decide::memory(&pools, facts),
        target: Some(target::of(command, wanted.source, facts, sizes)),
        java: None,
        heap: None,
        database: Some(Database {
            name: "PostgreSQL".to_owned(),
            version: settings.version.clone(),
            huge_pages: settings.huge_pages.name().to_owned(),
            max_connections: settings.max_connections,
            // Each connection is one.
            processes: settings.max_connections,
            page_tables_on_base_bytes: tables(sizes.base),
            page_tables_on_huge_bytes: tables(planned.0),
        }),
        direct_memory_bytes: None,
        default_page_size_bytes: sizes.default_hugetlb,
        regions,
        off_heap: None,
        pools,
        verdict,
        notes,
    }
}

/// Counts the pages that a running server holds as available: it gives them back before it is started again.
fn give_back(facts: &mut Facts, running: Option<RunningServer>) {
    let Some((bytes, Some(size))) = running.and_then(|server| server.shared_memory) else { return };
    if let Reading::Known(pools) = &mut facts.pools {
        for pool in pools.iter_mut().filter(|pool| pool.page_size == size && pool.node.is_none()) {
            // Its pages that were never touched are reserved, and not used.
            pool.free = (pool.available() + bytes.pages_needed(size)).min(pool.total);
            pool.reserved = Some(Pages(0));
        }
    }
}

/// Options that put the shared memory on pages of `planned`.
fn options(settings: &Settings, planned: PageSize, requested: PageSize) -> Vec<String> {
    let mut options = Vec::new();
    let mut set = |option: String| options.extend(["-c".to_owned(), option]);
    if settings.huge_pages != HugePages::On {
        set("huge_pages=on".to_owned());
    }
    if planned != requested {
        set(page_size_option(planned));
    }
    if !settings.is_mapped {
        set("shared_memory_type=mmap".to_owned());
    }
    options
}

/// The setting that selects the pages of a pool.
pub fn page_size_option(size: PageSize) -> String {
    let mib = size.bytes().0 >> 20;
    let size = if mib % 1024 == 0 { format!("{}GB", mib >> 10) } else { format!("{mib}MB") };
    format!("huge_page_size={size}")
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use hugewise_linux::{hugepages::pools::Pool, units::Bytes};

    use super::*;
    use crate::{plan::StartOutcome, testing::machine};

    fn readings(huge_pages: HugePages) -> Result<Readings, Box<dyn Error>> {
        Ok(Readings {
            settings: Settings {
                version: "15.18".to_owned(),
                huge_pages,
                huge_page_size: None,
                is_mapped: true,
                max_connections: 100,
            },
            user: Some("postgres".to_owned()),
            running: None,
            planned: ("2m".parse()?, Pages(72)),
            requested: ("2m".parse()?, Pages(72)),
        })
    }

    fn planned(readings: &Readings, free: u64, instances: u32) -> Result<Plan, Box<dyn Error>> {
        let (facts, sizes) = machine(100, free)?;
        let wanted = PlanRequest { instances, ..PlanRequest::default() };
        let command = ["postgres", "-D", "/data"].map(str::to_owned);
        Ok(decide(&command, readings, &wanted, &facts, &sizes))
    }

    #[test]
    fn the_setting_decides_what_a_missing_page_means() -> Result<(), Box<dyn Error>> {
        for (huge_pages, free, outcome, options) in [
            (HugePages::Try, 72, StartOutcome::GetsHugePages, "-c huge_pages=on"),
            (HugePages::Try, 71, StartOutcome::FallsBack, "-c huge_pages=on"),
            (HugePages::On, 72, StartOutcome::GetsHugePages, ""),
            (HugePages::On, 71, StartOutcome::Exits, ""),
            (HugePages::Off, 100, StartOutcome::DoesNotAsk, "-c huge_pages=on"),
        ] {
            let plan = planned(&readings(huge_pages)?, free, 1)?;
            assert_eq!(plan.verdict.outcome, outcome, "{huge_pages:?} with {free} pages");
            assert_eq!(plan.options.join(" "), options);
            let [pool] = &plan.pools[..] else { return Err(format!("{:#?}", plan.pools).into()) };
            assert_eq!(
                (pool.pages_needed, pool.pages_to_add),
                (Pages(72), Pages(72u64.saturating_sub(free)))
            );
        }
        let command =
            planned(&readings(HugePages::On)?, 100, 1)?.actions.pop().and_then(|start| start.command);
        assert_eq!(command.as_deref(), Some("runuser -u postgres -- postgres -D /data"));
        // The first of two servers takes the pages.
        assert_eq!(planned(&readings(HugePages::On)?, 100, 2)?.verdict.outcome, StartOutcome::Exits);
        Ok(())
    }

    #[test]
    fn a_segment_of_type_sysv_has_no_huge_pages() -> Result<(), Box<dyn Error>> {
        let mut readings = readings(HugePages::Try)?;
        readings.settings.is_mapped = false;
        let plan = planned(&readings, 100, 1)?;
        assert_eq!(plan.verdict.outcome, StartOutcome::FallsBack);
        assert!(plan.options.contains(&"shared_memory_type=mmap".to_owned()), "{:?}", plan.options);
        readings.settings.huge_pages = HugePages::On;
        assert_eq!(planned(&readings, 100, 1)?.verdict.outcome, StartOutcome::Exits);
        Ok(())
    }

    #[test]
    fn another_page_size_is_an_option_and_its_own_pool() -> Result<(), Box<dyn Error>> {
        let mut readings = readings(HugePages::Try)?;
        readings.planned = ("1g".parse()?, Pages(1));
        let plan = planned(&readings, 72, 1)?;
        assert_eq!(plan.options.join(" "), "-c huge_pages=on -c huge_page_size=1GB");
        assert_eq!(plan.pools[0].page_size_bytes, "1g".parse()?);
        // The unchanged line requests pages of 2 MiB.
        assert_eq!(plan.verdict.outcome, StartOutcome::GetsHugePages);
        Ok(())
    }

    #[test]
    fn a_running_server_gives_its_pages_back() -> Result<(), Box<dyn Error>> {
        let mut readings = readings(HugePages::On)?;
        let size: PageSize = "2m".parse()?;
        let server = |pool| RunningServer { pid: 7, shared_memory: Some((Pages(72) * size, pool)) };
        readings.running = Some(server(Some(size)));
        let plan = planned(&readings, 0, 1)?;
        assert_eq!(
            (plan.verdict.outcome, plan.pools[0].pages_to_add),
            (StartOutcome::GetsHugePages, Pages(0))
        );
        assert!(plan.notes.iter().any(|note| note.contains("process 7")), "{:?}", plan.notes);
        // Its pages that were not touched are reserved.
        let (mut facts, _) = machine(100, 72)?;
        let reserve = |facts: &mut Facts, reserved| {
            if let Reading::Known(pools) = &mut facts.pools {
                pools.iter_mut().for_each(|pool| pool.reserved = Some(reserved));
            }
        };
        reserve(&mut facts, Pages(44));
        give_back(&mut facts, readings.running);
        assert_eq!(facts.machine_pools().map(Pool::available).collect::<Vec<_>>(), [Pages(100)]);
        readings.running = Some(server(None));
        assert_eq!(planned(&readings, 0, 1)?.verdict.outcome, StartOutcome::Exits);
        Ok(())
    }

    #[test]
    fn page_tables_are_those_of_one_process() -> Result<(), Box<dyn Error>> {
        let database =
            planned(&readings(HugePages::Try)?, 72, 1)?.database.ok_or("a database was expected")?;
        assert_eq!(database.page_tables_on_base_bytes, Bytes(72 * 512 * 8));
        assert_eq!(database.page_tables_on_huge_bytes, Bytes(4096));
        Ok(())
    }
}
