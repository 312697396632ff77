//! PostgreSQL: a server takes the planned pages, one page fewer has the predicted result, and `inspect` names its shared
//! memory. The server is started for real, as a user without privileges.

use std::{
    error::Error,
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    thread,
    time::Instant,
};

use hugewise_linux::{proc::tree, root::Root, units::Pages};
use hugewise_plan::plan::{Plan, StartOutcome};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    databases::{INTERVAL, MAX_WAIT, Server, USER, as_user, taken},
    needs::{
        Need::{Pool, Postgres, Root as RootNeeded},
        postgres,
    },
    plan::with_pool,
    start::{covered, hugewise, left_running, reason_left_out, rounds, run, run_command},
    trial,
};

pub fn trials() -> Vec<Trial> {
    let needs = [RootNeeded, Pool, Postgres];
    vec![
        trial(
            "postgres: a server takes the planned pages, and none if one is missing",
            &needs,
            planned_pages,
        ),
        trial(
            "postgres: inspect names the shared memory, and counts it once",
            &needs,
            named_and_counted_once,
        ),
        trial("postgres: compare starts it on each backing, and proves its pages", &needs, compared),
    ]
}

/// A data folder, and options of its server.
struct Cluster {
    folder: TempDir,
    postgres: PathBuf,
}

impl Cluster {
    fn create() -> Result<Cluster, Box<dyn Error>> {
        let cluster = Cluster { folder: tempfile::tempdir()?, postgres: postgres().ok_or("no PostgreSQL")? };
        chown(cluster.folder.path(), Some(USER), Some(USER))?;
        let initdb = cluster.postgres.with_file_name("initdb");
        let created = as_user(&initdb).arg("-D").arg(cluster.data()).arg("--no-sync").output()?;
        match created.status.success() {
            true => Ok(cluster),
            false => Err(String::from_utf8_lossy(&created.stderr).into()),
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The command line of the server.
    fn line(&self, options: &[&str]) -> Result<Vec<String>, Box<dyn Error>> {
        let path = |path: &Path| path.to_str().map(str::to_owned).ok_or("a path that is not UTF-8");
        let sockets = format!("unix_socket_directories={}", self.folder.path().display());
        let start = [path(&self.postgres)?, "-D".to_owned(), path(&self.data())?];
        let own = ["-c", sockets.as_str(), "-c", "listen_addresses="];
        Ok(start.into_iter().chain(own.iter().chain(options).map(|word| (*word).to_owned())).collect())
    }

    fn plan(&self, options: &[&str]) -> Result<Plan, Box<dyn Error>> {
        let planned = hugewise(&["plan", "--json", "--"]).args(self.line(options)?).output()?;
        serde_json::from_slice(&planned.stdout)
            .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&planned.stderr)).into())
    }

    /// Starts the server; `None` if it exits instead.
    fn start(&self, options: &[&str]) -> Result<Option<Server>, Box<dyn Error>> {
        let line = self.line(options)?;
        let mut command = as_user(Path::new(&line[0]));
        let mut server = Server(command.args(&line[1..]).spawn()?);
        let begin = Instant::now();
        while begin.elapsed() < MAX_WAIT {
            if server.0.try_wait()?.is_some() {
                return Ok(None);
            }
            let lock = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
            if lock.lines().last().is_some_and(|status| status.trim() == "ready") {
                return Ok(Some(server));
            }
            thread::sleep(INTERVAL);
        }
        Err("the server did not become ready".into())
    }
}

fn planned_pages() -> TestResult {
    let cluster = Cluster::create()?;
    for connections in ["max_connections=100", "max_connections=1000"] {
        let options = |huge_pages| ["-c", "shared_buffers=128MB", "-c", connections, "-c", huge_pages];
        let (tries, insists) = (options("huge_pages=try"), options("huge_pages=on"));
        let plan = cluster.plan(&tries)?;
        let [pool] = &plan.pools[..] else { return Err(format!("one pool was expected: {plan:#?}").into()) };
        let (size, needed) = (pool.page_size_bytes, pool.pages_needed);
        let outcome = |options: &[&str]| Ok::<_, Box<dyn Error>>(cluster.plan(options)?.verdict.outcome);
        with_pool(size, needed, || {
            assert_eq!(outcome(&insists)?, StartOutcome::GetsHugePages);
            let _server = cluster.start(&insists)?.ok_or("it does not start on the planned pages")?;
            assert_eq!(taken(size)?, needed, "{connections}");
            // The running server is planned for with the size of its shared memory, and gives its pages back.
            let again = cluster.plan(&insists)?;
            let pool = again.pools.first().ok_or("a pool was expected")?;
            assert_eq!((pool.pages_needed, pool.pages_to_add), (needed, Pages(0)), "{again:#?}");
            Ok(())
        })?;
        with_pool(size, needed.saturating_sub(Pages(1)), || {
            assert_eq!(outcome(&tries)?, StartOutcome::FallsBack);
            let server = cluster.start(&tries)?.ok_or("it does not start with huge_pages=try")?;
            assert_eq!(taken(size)?, Pages(0), "{connections}");
            drop(server);
            assert_eq!(outcome(&insists)?, StartOutcome::Exits);
            assert!(cluster.start(&insists)?.is_none(), "it starts with a page too few");
            Ok(())
        })?;
    }
    Ok(())
}

/// What `inspect` reports of the processes of a server.
fn inspected(server: &Server) -> Result<Vec<Value>, Box<dyn Error>> {
    let pids: Vec<String> =
        tree::processes(&Root::live(), server.0.id()).iter().map(u32::to_string).collect();
    let words: Vec<&str> = ["inspect", "--json"].into_iter().chain(pids.iter().map(String::as_str)).collect();
    let printed = run(&words)?.ended_with(0)?.stdout;
    Ok(printed.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// The shared memory of a server in an inspected process.
fn shared_memory(process: &Value) -> Result<&Value, Box<dyn Error>> {
    let regions = process["regions"].as_array().ok_or("no regions")?;
    let found = regions.iter().find(|region| region["kind"] == "database");
    Ok(found.ok_or_else(|| format!("no region of a database: {process:#}"))?)
}

fn named_and_counted_once() -> TestResult {
    let cluster = Cluster::create()?;
    let plan = cluster.plan(&[])?;
    let pool = plan.pools.first().ok_or("a pool was expected")?;
    let size = pool.page_size_bytes;
    for (pages, huge) in [(pool.pages_needed, true), (Pages(1), false)] {
        with_pool(size, pages, || {
            let server = cluster.start(&["-c", "huge_pages=try"])?.ok_or("it does not start")?;
            let processes = inspected(&server)?;
            let region = shared_memory(&processes[0])?;
            assert_eq!(region["name"], "PostgreSQL shared memory");
            let reason = if huge { Value::Null } else { "pool_short_at_start".into() };
            assert_eq!(region["reason"], reason, "{region:#}");
            let key = if huge { size.bytes().0 } else { 4096 }.to_string();
            assert_eq!(region["bytes_by_page_size"][&key], region["resident_bytes"], "{region:#}");
            let before: u64 =
                processes.iter().filter_map(|process| process["counted_before"][&key].as_u64()).sum();
            assert!(before > 0, "its processes share no memory: {processes:#?}");
            if huge {
                let all: u64 =
                    processes.iter().filter_map(|process| process["totals"]["hugetlb_bytes"].as_u64()).sum();
                let most = taken(size)? * size;
                assert!(all - before <= most.0, "{all} less {before} is more than {most:?}");
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Each run has a copy of the data, and a driver that reads from it.
fn compared() -> TestResult {
    let cluster = Cluster::create()?;
    let folder = cluster.folder.path().display().to_string();
    let copy = format!("{folder}/copy-{{port}}");
    let server = cluster.line(&["-p", "{port}", "-c", "shared_buffers=128MB"])?.join(" ");
    let server = server.replace(&format!("{folder}/data"), &copy);
    let query = cluster.folder.path().join("query.sql");
    fs::write(&query, "select count(*) from pg_class;")?;
    let (pgbench, query) = (cluster.postgres.with_file_name("pgbench"), query.display().to_string());
    let driver = ["-n", "-h", &folder, "-p", "{port}", "-U", "nobody", "-t", "200", "-f", &query, "postgres"];
    let before = taken("2m".parse()?)?;
    let make = || {
        let mut command = hugewise(&["compare", "--json", "--rounds", "1", "-b", "thp,hugetlb"]);
        command.args(["--server", &server, "--user", "nobody", "--ready", "ready to accept connections"]);
        command.args([
            "--prepare",
            &format!("cp -a {folder}/data {copy}"),
            "--cleanup",
            &format!("rm -r {copy}"),
        ]);
        command.args(["--operations", "actually processed: ([0-9]+)", "--"]).arg(&pgbench).args(driver);
        command
    };
    let ended = run_command(&make)?;
    // One round is inconclusive, and thp, which was requested, is skipped.
    let comparison = ended.ended_with(1)?.comparison()?;
    covered(&comparison, "hugetlb", 0.95)?;
    for round in rounds(&comparison, "base")? {
        assert!(round.fell_back.is_none() && round.coverage == Some(0.0), "{round:#?}");
    }
    assert!(reason_left_out(&comparison, "thp")?.contains("madvise"));
    assert_eq!(comparison.cases[0].figures[0].name, "cpu_per_operation");
    assert_eq!(taken("2m".parse()?)?, before);
    let left: Vec<String> = fs::read_dir(cluster.folder.path())?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(left.len(), 2, "data and query were expected: {left:?}");
    assert!(left_running().is_empty());
    Ok(())
}
