//! Cache of readings that take long: JVMs' answers for the next start of the same command line, and the gain
//! of huge pages for random reads on this machine.
//!
//! An entry contains its whole key and is used only if the key is identical: values are never outdated.
//! Unreadable entries are ignored.

use std::{
    env,
    ffi::{OsStr, OsString},
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

use hugewise_linux::sys::{file::Folder, process};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Largest number of entries.
const MAX_ENTRIES: usize = 100;
/// Largest size of an entry, in bytes.
const MAX_ENTRY_BYTES: u64 = 4 << 20;

/// The folder of root's cache is below this one, whatever the environment names: another user may own that.
const CACHES_OF_MACHINE: &str = "/var/cache";
/// Ending of the names of entries.
const ENDING: &str = ".json";
/// Hexadecimal digits of the names of entries.
const NAME_DIGITS: usize = 16;

/// The cache directory.
pub struct Cache(Folder);

#[derive(Serialize, Deserialize)]
struct Entry<T> {
    key: String,
    value: T,
}

impl Cache {
    /// The cache of the user; `None` without a private directory.
    pub fn of_user() -> Option<Cache> {
        Cache::at(&parent(process::is_root(), |name| env::var_os(name))?)
    }

    fn at(parent: &Path) -> Option<Cache> {
        Folder::create_all(parent, 0o700).ok()?;
        Folder::private(&parent.join("hugewise")).ok().map(Cache)
    }

    /// The value stored under exactly this key.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let text = self.0.read(name(key).as_ref(), MAX_ENTRY_BYTES).ok()?;
        let entry: Entry<T> = serde_json::from_slice(&text).ok()?;
        (entry.key == key).then_some(entry.value)
    }

    /// Stores the value. A failure is ignored: the next command finds it out again.
    pub fn put<T: Serialize>(&self, key: String, value: &T) {
        let name = name(&key);
        if let Ok(text) = serde_json::to_vec(&Entry { key, value }) {
            let _ = self.0.replace(name.as_ref(), 0o600, &text);
        }
        self.prune();
    }

    /// Removes the oldest entries beyond `MAX_ENTRIES`. Other files are kept.
    fn prune(&self) {
        let modified = |name: &OsString| self.0.metadata(name).ok()?.modified().ok();
        let names = self.0.names().unwrap_or_default().into_iter().filter(|name| is_of_entry(name));
        let mut entries: Vec<_> = names.filter_map(|name| Some((modified(&name)?, name))).collect();
        entries.sort();
        for (_, name) in entries.iter().take(entries.len().saturating_sub(MAX_ENTRIES)) {
            let _ = self.0.remove(name);
        }
    }
}

/// The folder that contains the cache; `None` if the user has none.
fn parent(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if is_root {
        return Some(PathBuf::from(CACHES_OF_MACHINE));
    }
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))
}

/// The name of the entry for a key.
fn name(key: &str) -> String {
    let mut hash = DefaultHasher::new();
    key.hash(&mut hash);
    format!("{:0NAME_DIGITS$x}{ENDING}", hash.finish())
}

fn is_of_entry(name: &OsStr) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digits = name.to_str().and_then(|name| name.strip_suffix(ENDING));
    digits.is_some_and(|digits| digits.len() == NAME_DIGITS && digits.bytes().all(is_digit))
}

#[cfg(test)]
mod tests {
    use std::{
        error::Error,
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

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
        let file = |key| dir.path().join("hugewise").join(name(key));
        cache.put("a".to_owned(), &answers());
        assert_eq!((cache.get("a"), cache.get::<JvmAnswers>("b")), (Some(answers()), None));
        // With equal hashes the key decides.
        fs::copy(file("a"), file("b"))?;
        assert_eq!(cache.get::<JvmAnswers>("b"), None);
        for broken in ["", "{", "{\"key\": \"a\"}", "null"] {
            fs::write(file("a"), broken)?;
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
        assert_eq!(fs::read_dir(dir.path().join("hugewise"))?.count(), MAX_ENTRIES);
        fs::set_permissions(dir.path().join("hugewise"), fs::Permissions::from_mode(0o777))?;
        assert!(Cache::at(dir.path()).is_none());
        Ok(())
    }

    #[test]
    fn an_opened_cache_does_not_follow_its_path() -> Result<(), Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let (folder, victim) = (dir.path().join("hugewise"), dir.path().join("victim"));
        fs::create_dir(&victim)?;
        for n in 0..MAX_ENTRIES + 50 {
            fs::write(victim.join(format!("{n:016x}.json")), "precious")?;
        }
        let cache = Cache::at(dir.path()).ok_or("no cache")?;
        // Another user owns the folder around it.
        fs::rename(&folder, dir.path().join("moved"))?;
        symlink(&victim, &folder)?;
        cache.put("a".to_owned(), &answers());
        assert_eq!(fs::read_dir(&victim)?.count(), MAX_ENTRIES + 50);
        assert_eq!(cache.get("a"), Some(answers()));
        assert!(Cache::at(dir.path()).is_none(), "a link is no cache");
        Ok(())
    }

    #[test]
    fn other_files_are_neither_removed_nor_read_through_links() -> Result<(), Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let cache = Cache::at(dir.path()).ok_or("no cache")?;
        let folder = dir.path().join("hugewise");
        for n in 0..MAX_ENTRIES {
            fs::write(folder.join(format!("notes-{n}.json")), "precious")?;
        }
        cache.put("a".to_owned(), &answers());
        assert_eq!(fs::read_dir(&folder)?.count(), MAX_ENTRIES + 1);
        fs::rename(folder.join(name("a")), dir.path().join("elsewhere"))?;
        symlink(dir.path().join("elsewhere"), folder.join(name("a")))?;
        assert_eq!(cache.get::<JvmAnswers>("a"), None);
        Ok(())
    }

    #[test]
    fn root_uses_the_cache_of_the_machine_whatever_the_environment_names() {
        let of_user = |name: &str| Some(OsString::from(format!("/home/user/{name}")));
        assert_eq!(parent(true, of_user), Some("/var/cache".into()));
        assert_eq!(parent(false, of_user), Some("/home/user/XDG_CACHE_HOME".into()));
        let home = |name: &str| (name == "HOME").then(|| "/home/user".into());
        assert_eq!(parent(false, home), Some("/home/user/.cache".into()));
        assert_eq!(parent(false, |_| Some("relative".into())), None);
    }
}
