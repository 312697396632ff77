//! MariaDB: a server takes the planned pages, and one page fewer has the predicted result. The server is started for
//! real, as a user without privileges.

use std::{
    collections::BTreeMap,
    error::Error,
    fs::{self, File},
    os::unix::fs::chown,
    path::{Path, PathBuf},
    thread,
    time::{Instant, SystemTime},
};

use hugewise_linux::{
    proc::smaps,
    root::Root,
    units::{Bytes, PageSize, Pages},
};
use hugewise_plan::plan::{Plan, RegionOutcome, StartOutcome};
use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    databases::{INTERVAL, MAX_WAIT, Server, USER, as_user, taken},
    needs::{
        Need::{self, Free, GiantPool, Mariadb, Pool, Root as RootNeeded},
        mariadb,
    },
    plan::with_pools,
    start::hugewise,
    trial,
};

const BUFFER_POOL: &str = "InnoDB buffer pool";
const LOG_BUFFERS: &str = "InnoDB log buffers";

pub fn trials() -> Vec<Trial> {
    let needs = [RootNeeded, Pool, Mariadb];
    let mut trials = Vec::new();
    for (n, buffer_pool) in ["128M", "1G", "4G"].into_iter().enumerate() {
        for (m, connections) in [100, 1000].into_iter().enumerate() {
            let name = format!("mariadb: {buffer_pool} for {connections} connections take the planned pages");
            let enough: &[Need] = if buffer_pool == "4G" { &[Free(6 << 10)] } else { &[] };
            let needs = [&needs[..], enough].concat();
            let taken = trial(&name, &needs, move || planned_pages(buffer_pool, connections));
            trials.push(taken.representing(n + m == 0));
        }
    }
    trials.push(trial(
        "mariadb: each buffer that lacks a page falls back as predicted",
        &needs,
        one_page_fewer,
    ));
    trials.push(trial(
        "mariadb: a plan changes no file of the server",
        &[RootNeeded, Mariadb],
        no_file_changes,
    ));
    let needs = [RootNeeded, Pool, GiantPool, Mariadb];
    let giant = trial("mariadb: a buffer pool of 1 GiB takes one page of 1 GiB", &needs, giant_pages);
    trials.push(giant.representing(false));
    trials
}

/// A data folder.
struct Database {
    folder: TempDir,
    mariadbd: PathBuf,
}

impl Database {
    fn create() -> Result<Database, Box<dyn Error>> {
        let database = Database { folder: tempfile::tempdir()?, mariadbd: mariadb().ok_or("no MariaDB")? };
        chown(database.folder.path(), Some(USER), Some(USER))?;
        let mut install = as_user(Path::new("mariadb-install-db"));
        install.args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"]);
        let created = install.arg(format!("--datadir={}", database.data().display())).output()?;
        match created.status.success() {
            true => Ok(database),
            false => Err(String::from_utf8_lossy(&created.stderr).into()),
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The command line of the server with large pages.
    fn line(&self, options: &[&str]) -> Vec<String> {
        let folder = self.folder.path().display();
        let own = ["--no-defaults", "--skip-networking", "--large-pages"].map(str::to_owned);
        let files = [
            format!("--datadir={}", self.data().display()),
            format!("--socket={folder}/socket"),
            format!("--pid-file={folder}/pid"),
            format!("--user={USER}"),
        ];
        let options = options.iter().map(|option| (*option).to_owned());
        [self.mariadbd.display().to_string()].into_iter().chain(own).chain(files).chain(options).collect()
    }

    fn plan(&self, backing: &str, options: &[&str]) -> Result<Plan, Box<dyn Error>> {
        let planned =
            hugewise(&["plan", "--json", "--backing", backing, "--"]).args(self.line(options)).output()?;
        serde_json::from_slice(&planned.stdout)
            .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&planned.stderr)).into())
    }

    /// Starts the server, and waits until it is ready.
    fn start(&self, options: &[&str]) -> Result<Server, Box<dyn Error>> {
        let line = self.line(options);
        let log = self.folder.path().join("log");
        let mut command = as_user(Path::new(&line[0]));
        command.args(&line[1..]).stderr(File::create(&log)?);
        let mut server = Server(command.spawn()?);
        let begin = Instant::now();
        while begin.elapsed() < MAX_WAIT {
            let said = fs::read_to_string(&log)?;
            if said.contains("ready for connections") {
                return Ok(server);
            }
            if let Some(status) = server.0.try_wait()? {
                return Err(format!("the server ended with {status}: {said}").into());
            }
            thread::sleep(INTERVAL);
        }
        Err("the server did not become ready".into())
    }
}

/// Pages of each mapping of a server on pages of this size; the buffer pool may have several.
fn mapped(server: &Server, size: PageSize) -> Result<Vec<Pages>, Box<dyn Error>> {
    let vmas = smaps::read(&Root::live(), &server.0.id().to_string())?;
    let of_pool = vmas.iter().filter(|vma| vma.is_hugetlb && vma.kernel_page_size == size.bytes());
    let bytes = of_pool.map(|vma| Bytes(vma.addresses.end - vma.addresses.start));
    Ok(bytes.map(|bytes| bytes.pages_needed(size)).collect())
}

/// Pages of `size` that the plan has for the buffers apart from the buffer pool, and for the buffer pool at least and
/// at most.
fn planned(plan: &Plan, size: PageSize) -> (Pages, (Pages, Pages)) {
    let regions = plan.regions.iter().filter(|region| region.page_size_bytes == size);
    let (pool, others): (Vec<_>, Vec<_>) = regions.partition(|region| region.name == BUFFER_POOL);
    let at_least: Pages = pool.iter().map(|region| region.bytes_at_start.pages_needed(size)).sum();
    let at_most: Pages = pool.iter().map(|region| region.bytes.pages_needed(size)).sum();
    (others.iter().map(|region| region.bytes.pages_needed(size)).sum(), (at_least, at_most))
}

/// Checks the pages that a server took: those of the other buffers exactly, and those of a buffer pool at its address.
fn check_taken(server: &Server, size: PageSize, others: Pages, pool: (Pages, Pages)) -> TestResult {
    let (taken, buffers) = (taken(size)?, mapped(server, size)?);
    assert_eq!(taken, buffers.iter().copied().sum(), "the pages of its mappings {buffers:?}");
    let of_pool = taken.saturating_sub(others);
    assert!(
        taken >= others && (pool.0..=pool.1).contains(&of_pool),
        "{taken} pages were taken by {buffers:?}, {others} and {pool:?} were planned"
    );
    println!("{taken} pages taken, {} to {} planned", others + pool.0, others + pool.1);
    Ok(())
}

fn planned_pages(buffer_pool: &str, connections: u32) -> TestResult {
    let database = Database::create()?;
    let options =
        [format!("--innodb-buffer-pool-size={buffer_pool}"), format!("--max-connections={connections}")];
    let options = [options[0].as_str(), options[1].as_str()];
    let plan = database.plan("hugetlb:2MiB", &options)?;
    let [pool] = &plan.pools[..] else { return Err(format!("one pool was expected: {plan:#?}").into()) };
    let (size, needed) = (pool.page_size_bytes, pool.pages_needed);
    let (others, of_pool) = planned(&plan, size);
    assert_eq!((others + of_pool.0, others + of_pool.1), (pool.pages_at_start, needed));
    with_pools(&[(size, needed)], || {
        assert_eq!(database.plan("hugetlb:2MiB", &options)?.verdict.outcome, StartOutcome::GetsHugePages);
        check_taken(&database.start(&options)?, size, others, of_pool)
    })?;
    // The buffer pool may have an address at which a page fewer suffices.
    let one_fewer = needed.saturating_sub(Pages(1));
    with_pools(&[(size, one_fewer)], || {
        let verdict = database.plan("hugetlb:2MiB", &options)?.verdict;
        assert_eq!(verdict.outcome, StartOutcome::Unknown, "{verdict:#?}");
        let server = database.start(&options)?;
        if taken(size)? >= others + of_pool.0 {
            return check_taken(&server, size, others, (of_pool.0, of_pool.1.saturating_sub(Pages(1))));
        }
        // The predicted pages are those at the address that needs the most.
        check_taken(&server, size, on_huge(&verdict.regions, size), (of_pool.1, of_pool.1))
    })
}

/// Predicted pages of the buffers apart from the buffer pool.
fn on_huge(regions: &[RegionOutcome], size: PageSize) -> Pages {
    let others = regions.iter().filter(|region| region.name != BUFFER_POOL);
    others.map(|region| region.huge_bytes.pages_needed(size)).sum()
}

/// One page fewer than the first buffers need together: each falls back in turn.
fn one_page_fewer() -> TestResult {
    let database = Database::create()?;
    let plan = database.plan("hugetlb:2MiB", &[])?;
    let size = plan.pools.first().ok_or("a pool was expected")?.page_size_bytes;
    let mut sum = Pages(0);
    for region in &plan.regions {
        sum += region.bytes_at_start.pages_needed(size);
        let short = sum.saturating_sub(Pages(1));
        with_pools(&[(size, short)], || {
            let verdict = database.plan("hugetlb:2MiB", &[])?.verdict;
            assert_eq!(verdict.outcome, StartOutcome::FallsBack, "{short} pages: {verdict:#?}");
            let lost = verdict.regions.iter().find(|outcome| outcome.name == region.name);
            let huge = lost.ok_or("the region is missing")?.huge_bytes;
            assert!(huge < region.bytes, "{short} pages: {verdict:#?}");
            let has_pool = verdict
                .regions
                .iter()
                .any(|region| region.name == BUFFER_POOL && region.huge_bytes > Bytes::ZERO);
            let of_pool = if has_pool { planned(&plan, size).1 } else { (Pages(0), Pages(0)) };
            let server = database.start(&[])?;
            check_taken(&server, size, on_huge(&verdict.regions, size), of_pool)
        })?;
        if region.name == LOG_BUFFERS {
            break;
        }
    }
    Ok(())
}

/// Sizes of files, and times of their last changes.
type Files = BTreeMap<PathBuf, (u64, SystemTime)>;

/// The files below a folder.
fn files(folder: &Path) -> Result<Files, Box<dyn Error>> {
    let mut found = Files::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, about) = (entry.path(), entry.metadata()?);
        if about.is_dir() {
            found.extend(files(&path)?);
        }
        found.insert(path, (about.len(), about.modified()?));
    }
    Ok(found)
}

fn no_file_changes() -> TestResult {
    let database = Database::create()?;
    let folder = database.folder.path().display();
    let written = [
        ("log-error", "error"),
        ("general-log-file", "general"),
        ("slow-query-log-file", "slow"),
        ("log-bin", "binary"),
        ("innodb-data-home-dir", ""),
        ("innodb-log-group-home-dir", ""),
        ("aria-log-dir-path", ""),
        ("tmpdir", ""),
    ];
    let options = written.map(|(option, name)| format!("--{option}={folder}/{name}"));
    let options: Vec<&str> =
        options.iter().map(String::as_str).chain(["--general-log", "--slow-query-log"]).collect();
    let before = files(database.folder.path())?;
    let plan = database.plan("hugetlb:2MiB", &options)?;
    assert_eq!(plan.regions.len(), 4, "{plan:#?}");
    assert_eq!(files(database.folder.path())?, before);
    Ok(())
}

/// Pages of 1 GiB are for buffers of that size: without one, the buffer pool is on pages of 2 MiB.
fn giant_pages() -> TestResult {
    let database = Database::create()?;
    let options = ["--innodb-buffer-pool-size=1G"];
    let (backing, giant): (_, PageSize) = ("hugetlb:1GiB", "1g".parse()?);
    let plan = database.plan(backing, &options)?;
    let pages = |size: PageSize| {
        let pool = plan.pools.iter().find(|pool| pool.page_size_bytes == size);
        pool.map_or(Pages(0), |pool| pool.pages_needed)
    };
    let small: PageSize = "2m".parse()?;
    assert_eq!(pages(giant), Pages(1), "{plan:#?}");
    with_pools(&[(giant, Pages(1)), (small, pages(small))], || {
        assert_eq!(database.plan(backing, &options)?.verdict.outcome, StartOutcome::GetsHugePages);
        let server = database.start(&options)?;
        assert_eq!(taken(giant)?, Pages(1));
        check_taken(&server, small, pages(small), (Pages(0), Pages(0)))
    })?;
    let on_small = database.plan("hugetlb:2MiB", &options)?;
    let pool = on_small.pools.first().ok_or("a pool was expected")?;
    for (pages, outcome, expected) in [
        (pool.pages_needed, StartOutcome::FallsBack, small),
        (pages(small), StartOutcome::FallsBack, "4k".parse()?),
    ] {
        with_pools(&[(small, pages)], || {
            let verdict = database.plan(backing, &options)?.verdict;
            let region = verdict.regions.iter().find(|region| region.name == BUFFER_POOL);
            assert_eq!(
                (verdict.outcome, region.map(|region| region.page_size_bytes)),
                (outcome, Some(expected))
            );
            let of_pool = if expected == small { planned(&on_small, small).1 } else { (Pages(0), Pages(0)) };
            check_taken(&database.start(&options)?, small, on_huge(&verdict.regions, small), of_pool)
        })?;
    }
    Ok(())
}
