//! Cache of readings that take long: JVMs' answers for the next start of the same command line, and the gain
//! of huge pages for random reads on this machine.
//!
//! An entry contains its whole key and is used only if the key is identical: values are never outdated.
//! Unreadable entries are ignored.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use hugewise_linux::sys::{file, process};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Largest number of entries.
const MAX_ENTRIES: usize = 100;
/// Largest size of an entry, in bytes.
const MAX_ENTRY_BYTES: u64 = 4 << 20;

/// The cache directory.
pub struct Cache(PathBuf);

#[derive(Serialize, Deserialize)]
struct Entry<T> {
    key: String,
    value: T,
}

impl Cache {
    /// The cache of the user; `None` without a private directory.
    pub fn of_user() -> Option<Cache> {
        let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let parent = match absolute("XDG_CACHE_HOME") {
            Some(cache) => cache,
            None if process::is_root() => PathBuf::from("/var/cache"),
            None => absolute("HOME")?.join(".cache"),
        };
        Cache::at(&parent)
    }

    fn at(parent: &Path) -> Option<Cache> {
        let dir = parent.join("hugewise");
        if !parent.is_dir() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).ok()?;
        }
        file::private_dir(&dir).ok().map(|_| Cache(dir))
    }

    fn file(&self, key: &str) -> PathBuf {
        let mut hash = DefaultHasher::new();
        key.hash(&mut hash);
        self.0.join(format!("{:016x}.json", hash.finish()))
    }

    /// The value stored under exactly this key.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let file = self.file(key);
        if fs::metadata(&file).ok()?.len() > MAX_ENTRY_BYTES {
            return None;
        }
        let entry: Entry<T> = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
        (entry.key == key).then_some(entry.value)
    }

    /// Stores the value. A failure is ignored: the next command finds it out again.
    pub fn put<T: Serialize>(&self, key: String, value: &T) {
        let file = self.file(&key);
        let keep = || {
            let mut draft = tempfile::NamedTempFile::new_in(&self.0)?;
            draft.write_all(&serde_json::to_vec(&Entry { key, value })?)?;
            draft.persist(file)?;
            anyhow::Ok(())
        };
        let _ = keep();
        self.prune();
    }

    /// Removes the oldest entries beyond `MAX_ENTRIES`.
    fn prune(&self) {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut entries: Vec<_> = entries
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        entries.sort();
        for (_, path) in entries.iter().take(entries.len().saturating_sub(MAX_ENTRIES)) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error, os::unix::fs::PermissionsExt};

    use hugewise_linux::units::Bytes;
    use hugewise_plan::backing_selection::JvmAnswers;

    use super::*;

    fn answers() -> JvmAnswers {
        let (version, collector) = ("17".to_owned(), "G1".to_owned());
        JvmAnswers { version, collector, max_heap: Bytes(1 << 30), offers: Vec::new() }
    }

    #[test]
    fn only_the_same_key_gets_the_answer() -> Result<(), Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let cache = Cache::at(dir.path()).ok_or("no cache")?;
        cache.put("a".to_owned(), &answers());
        assert_eq!((cache.get("a"), cache.get::<JvmAnswers>("b")), (Some(answers()), None));
        // With equal hashes the key decides.
        fs::copy(cache.file("a"), cache.file("b"))?;
        assert_eq!(cache.get::<JvmAnswers>("b"), None);
        for broken in ["", "{", "{\"key\": \"a\"}", "null"] {
            fs::write(cache.file("a"), broken)?;
            assert_eq!(cache.get::<JvmAnswers>("a"), None, "{broken}");
        }
        cache.put("a".to_owned(), &answers());
        assert_eq!(cache.get("a"), Some(answers()));
        Ok(())
    }

    #[test]
    fn it_has_a_limit_and_must_be_private() -> Result<(), Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let cache = Cache::at(dir.path()).ok_or("no cache")?;
        for n in 0..MAX_ENTRIES + 5 {
            cache.put(n.to_string(), &answers());
        }
        assert_eq!(fs::read_dir(&cache.0)?.count(), MAX_ENTRIES);
        fs::set_permissions(&cache.0, fs::Permissions::from_mode(0o777))?;
        assert!(Cache::at(dir.path()).is_none());
        Ok(())
    }
}
