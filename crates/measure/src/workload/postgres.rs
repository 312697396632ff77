//! A PostgreSQL server: the backing of its shared memory is an option of its command line.

use std::{collections::BTreeMap, ffi::OsString};

use hugewise_databases::postgres::{Server, line::PostgresLine};
use hugewise_evidence::observation::RegionOfInterest;
use hugewise_linux::{hugepages::backing::Backing, reading::Reason, units::PageSize};
use hugewise_plan::postgres::page_size_option;

use super::{Conditions, OwnFigures, Prepared, Workload, WorkloadKind};
use crate::execution::Launch;

impl Workload {
    /// A server with its whole `command`, whose own part is `line`.
    pub fn postgres(command: Vec<String>, line: PostgresLine, own: OwnFigures) -> Workload {
        Workload {
            name: "PostgreSQL".to_owned(),
            turns: None,
            own,
            kind: WorkloadKind::Postgres { command, line },
        }
    }
}

pub(super) fn prepare(
    command: &[String],
    line: &PostgresLine,
    backing: Backing,
    conditions: &Conditions,
) -> Result<Prepared, Reason> {
    let (options, pools) = match backing {
        Backing::Base => (vec!["huge_pages=off".to_owned()], BTreeMap::new()),
        Backing::Hugetlb(_) => {
            let size = conditions.sizes.huge_page_of(backing);
            let size = size.ok_or_else(|| Reason::new("the default size of huge pages is unknown"))?;
            let pages = server(line, conditions)?.pages(size).map_err(|why| Reason::new(why.to_string()))?;
            (hugetlb_options(size), BTreeMap::from([(size, pages * size)]))
        }
        Backing::Thp => {
            return Reason::err(
                "PostgreSQL does not request transparent huge pages for its shared memory (madvise); compare base with \
                 hugetlb",
            );
        }
        Backing::Shm(_) => {
            return Reason::err("PostgreSQL requests pages of a pool by mmap, not by System V shared memory");
        }
    };
    let added: Vec<String> = options.into_iter().flat_map(|option| ["-c".to_owned(), option]).collect();
    let notes = vec![format!("added {}", added.join(" "))];
    Ok(Prepared {
        launch: Launch {
            command: command.iter().chain(&added).map(OsString::from).collect(),
            thp_disabled: backing == Backing::Base,
            ..Launch::default()
        },
        region: RegionOfInterest::PostgresSharedMemory,
        pools,
        shared_memory: false,
        passed: None,
        notes,
    })
}

/// With these options the server does not start on other pages.
fn hugetlb_options(size: PageSize) -> Vec<String> {
    vec!["huge_pages=on".to_owned(), page_size_option(size)]
}

/// The server, which must be down, and whose shared memory can be on pages of a pool.
fn server(line: &PostgresLine, conditions: &Conditions) -> Result<Server, Reason> {
    let mut line = line.clone();
    if let Some(session) = conditions.session {
        line.options = session.ports.in_words(&line.options);
        line.folder = session.ports.in_text(&line.folder);
    }
    let server = Server::query(&line).map_err(|why| Reason::new(why.to_string()))?;
    if !server.settings.is_mapped {
        return Reason::err("shared_memory_type is not mmap, which pages of a pool need");
    }
    Ok(server)
}
