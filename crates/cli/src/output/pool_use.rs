//! Who uses the pages of pools, as text.

use hugewise_linux::{
    hugepages::{
        pool_use::{PoolMemory, PoolUse},
        pools::Pool,
    },
    units::Bytes,
};

use super::terminal::plain;

/// Largest number of users, or of segments, that are named.
const MAX_USERS: usize = 8;

/// For each pool with pages in use, the account of these pages, then its users, the largest first.
pub fn lines<'a>(users: &PoolUse, pools: impl Iterator<Item = &'a Pool>) -> Vec<String> {
    let mut lines = Vec::new();
    for pool in pools.filter(|pool| pool.total > pool.free) {
        let account = users.account(pool);
        lines.push(format!(
            "{} in use, {}: processes {} · files {} · shared memory {} · unknown {}",
            pool.page_size,
            account.used,
            account.private,
            account.files,
            account.shared,
            account.remainder()
        ));
        if account.remainder() > Bytes::ZERO {
            lines.push(unknown(users, pool, account.remainder()));
        }
        lines.extend(named(users, pool));
    }
    lines
}

/// Who may use the pages whose user is unknown.
fn unknown(users: &PoolUse, pool: &Pool, remainder: Bytes) -> String {
    let possible = users.possible.iter();
    let segments: Vec<String> = possible
        .filter(|one| one.page_size_bytes == pool.page_size && one.bytes <= remainder)
        .take(MAX_USERS)
        .map(|one| format!("{} of {}", one.bytes, one.name))
        .collect();
    match (segments.as_slice(), users.unread) {
        ([], 0) => {
            "  unknown: files of other mount namespaces, or SysV segments of other IPC namespaces".to_owned()
        }
        ([], unread) => format!("  unknown: {unread} processes could not be read"),
        (segments, _) => format!("  unknown: possibly {}, attached by no process", segments.join(", ")),
    }
}

fn named(users: &PoolUse, pool: &Pool) -> Vec<String> {
    let memory = |one: &PoolMemory| {
        let between = if one.processes.is_empty() { "," } else { " of" };
        (one.bytes, format!("{}{between} {}", plain(&one.name), processes(&one.processes)))
    };
    let of_pool = |one: &&PoolMemory| one.page_size_bytes == pool.page_size;
    let mut all: Vec<(Bytes, String)> =
        users.private.iter().chain(&users.shared).filter(of_pool).map(memory).collect();
    let files = users.files.iter().filter(|file| file.page_size_bytes == pool.page_size);
    all.extend(files.map(|file| {
        (file.bytes, format!("{}, {}", plain(&file.path.to_string_lossy()), processes(&file.processes)))
    }));
    all.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let more = all.len().saturating_sub(MAX_USERS);
    let mut lines: Vec<String> =
        all.into_iter().take(MAX_USERS).map(|(bytes, user)| format!("  {bytes} {user}")).collect();
    if more > 0 {
        lines.push(format!("  and {more} more: see --json"));
    }
    lines
}

fn processes(pids: &[u32]) -> String {
    match pids {
        [] => "which no process maps".to_owned(),
        [pid] => format!("process {pid}"),
        [pid, others @ ..] => format!("process {pid} and {} others", others.len()),
    }
}
