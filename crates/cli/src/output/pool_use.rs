//! Who uses the pages of pools, as text.

use hugewise_linux::{
    hugepages::{
        pool_use::{PoolMemory, PoolUse},
        pools::Pool,
    },
    units::Bytes,
};

use super::terminal::plain;

/// Largest number of users that are named.
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
        if account.remainder() > Bytes::ZERO && users.unread > 0 {
            lines.push(format!("  unknown: {} processes could not be read", users.unread));
        } else if account.remainder() > Bytes::ZERO {
            lines.push(
                "  unknown: SysV segments that no process attaches (ipcs -m), or files of other mount namespaces"
                    .to_owned(),
            );
        }
        lines.extend(named(users, pool));
    }
    lines
}

fn named(users: &PoolUse, pool: &Pool) -> Vec<String> {
    let memory =
        |one: &PoolMemory| (one.bytes, format!("{} of {}", plain(&one.name), processes(&one.processes)));
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
