//! What the tests of database servers have in common.

use std::{
    error::Error,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{
    hugepages::pools,
    root::Root,
    sys::process::terminate_process,
    units::{PageSize, Pages},
};

/// User ID and group ID of an account without privileges: the servers refuse to start as root.
pub const USER: u32 = 65534;
/// Longest wait for a server to be ready or to end.
pub const MAX_WAIT: Duration = Duration::from_secs(60);
/// Time between two looks at a server.
pub const INTERVAL: Duration = Duration::from_millis(20);

pub fn as_user(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.uid(USER).gid(USER).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// A server that runs until it is dropped. With SIGTERM it waits for its clients; there are none.
pub struct Server(pub Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = terminate_process(self.0.id(), || true);
        let begin = Instant::now();
        while begin.elapsed() < MAX_WAIT && matches!(self.0.try_wait(), Ok(None)) {
            thread::sleep(INTERVAL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Pages of a pool that are used or reserved.
pub fn taken(size: PageSize) -> Result<Pages, Box<dyn Error>> {
    let pools = pools::read(&Root::live())?;
    let pool =
        pools.iter().find(|pool| pool.page_size == size && pool.node.is_none()).ok_or("no such pool")?;
    Ok(pool.used() + pool.reserved.unwrap_or_default())
}
