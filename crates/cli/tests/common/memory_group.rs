//! Control groups with a memory limit.

use std::{
    error::Error,
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::units::Bytes;

use crate::{needs::memory_group, settings::MAX_WAIT_TIME};

/// A memory control group with the name of a unit, removed when dropped.
pub struct Group(pub PathBuf);

impl Group {
    pub fn make() -> Result<Group, Box<dyn Error>> {
        let parent = memory_group().ok_or("no group for memory")?;
        let folder = parent.join(format!("hugewise-test-{}.service", std::process::id()));
        fs::create_dir(&folder)?;
        Ok(Group(folder))
    }

    /// A group that may take this much memory.
    pub fn with_limit(memory: Bytes) -> Result<Group, Box<dyn Error>> {
        let group = Group::make()?;
        fs::write(group.file("memory.limit_in_bytes", "memory.max"), memory.0.to_string())?;
        Ok(group)
    }

    /// The path of a file, which has different names in cgroup v1 and v2.
    pub fn file(&self, v1: &str, v2: &str) -> PathBuf {
        self.0.join(if self.0.join(v1).exists() { v1 } else { v2 })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let begin = Instant::now();
        while fs::remove_dir(&self.0).is_err() && begin.elapsed() < MAX_WAIT_TIME {
            thread::sleep(Duration::from_millis(10));
        }
    }
}
