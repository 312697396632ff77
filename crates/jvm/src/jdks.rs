//! JDKs installed on a machine.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use hugewise_linux::{
    reading::{Reading, Reason},
    root::Root,
    sys::{file, process},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Java installation with a `release` file. Paths are those of the machine it is installed on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Jdk {
    /// Home directory, links resolved.
    pub home: PathBuf,
    /// Path of its `java`.
    pub java: PathBuf,
    /// `JAVA_VERSION` of the `release` file, such as `17.0.15` or `1.8.0_392`.
    pub version: String,
    /// Feature release, such as 17 or 8.
    pub major: u32,
    /// `IMPLEMENTOR` of the `release` file; `null` if the file has none.
    pub implementor: Option<String>,
    /// Whether the `java` of `PATH` is in this JDK.
    pub default: bool,
    /// Whether it can compile: `MODULES` of the `release` file contains `jdk.compiler`. Unknown if the file
    /// lists no modules.
    pub has_compiler: Reading<bool>,
}

/// Environment variables that locate Java; used on the live machine only.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    pub java_home: Option<PathBuf>,
    pub path: Option<OsString>,
}

impl Environment {
    pub fn of_this_process() -> Environment {
        Environment { java_home: env::var_os("JAVA_HOME").map(PathBuf::from), path: env::var_os("PATH") }
    }
}

/// Directories whose subdirectories may be JDKs.
const PARENTS: [&str; 7] =
    ["usr/lib/jvm", "usr/lib64/jvm", "usr/java", "usr/local", "usr/local/lib/jvm", "opt", "opt/java"];

/// Search path for `java` in a captured tree, whose `PATH` is unknown.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// JDKs in the usual directories and, on the live machine, those of `JAVA_HOME` and `PATH`: links resolved,
/// each once, the newest first.
pub fn find(root: &Root, environment: &Environment) -> Vec<Jdk> {
    let (java_home, path) = if root.is_live() {
        (environment.java_home.clone(), environment.path.clone().unwrap_or_default())
    } else {
        (None, OsString::from(USUAL_PATH))
    };
    let java_of_path = env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .filter_map(|dir| root.resolve(dir.join("java")).ok())
        .find(|java| root.has_file(java));

    let in_parents = PARENTS.iter().flat_map(|parent| {
        let names = root.list(parent).unwrap_or_default();
        names.into_iter().map(move |name| Path::new(parent).join(name))
    });
    // HOME/bin/java, or in JDK 8 HOME/jre/bin/java.
    let of_path = java_of_path.iter().flat_map(|java| java.ancestors().skip(2).take(2)).map(Path::to_owned);
    let mut homes: Vec<PathBuf> = in_parents
        .chain(java_home.filter(|home| home.is_absolute()))
        .chain(of_path)
        .filter_map(|home| root.resolve(home).ok())
        // A path that is not UTF-8 cannot be reported.
        .filter(|home| home.to_str().is_some())
        .collect();
    homes.sort();
    homes.dedup();

    let mut jdks: Vec<Jdk> =
        homes.iter().filter_map(|home| read(root, home, java_of_path.as_deref())).collect();
    jdks.sort_by(|a, b| b.major.cmp(&a.major).then_with(|| a.home.cmp(&b.home)));
    jdks
}

/// Reads the JDK in `home` (relative to the root, links resolved); `None` if `home` is not a JDK.
fn read(root: &Root, home: &Path, java_of_path: Option<&Path>) -> Option<Jdk> {
    let java = home.join("bin/java");
    if !root.has_file(&java) {
        return None;
    }
    let release = root.read(home.join("release")).ok()?;
    let version = property(&release, "JAVA_VERSION")?;
    let has_compiler = match property(&release, "MODULES") {
        Some(modules) => Reading::Known(modules.split_whitespace().any(|module| module == "jdk.compiler")),
        None => Reading::unknown("its release file lists no modules"),
    };
    Some(Jdk {
        major: major(&version)?,
        implementor: property(&release, "IMPLEMENTOR"),
        default: java_of_path.is_some_and(|of_path| of_path.starts_with(home)),
        has_compiler,
        version,
        java: Path::new("/").join(java),
        home: Path::new("/").join(home),
    })
}

impl Jdk {
    /// Fails if another user could have put this JDK there: one that was only found is then not started. That of
    /// `JAVA_HOME` or `PATH` is the choice of the caller.
    pub fn check_owners(&self, environment: &Environment) -> Result<(), Reason> {
        let of_caller = environment.java_home.as_ref().and_then(|home| fs::canonicalize(home).ok());
        if self.default || of_caller.as_ref() == Some(&self.home) {
            return Ok(());
        }
        let java = fs::canonicalize(&self.java)?;
        Ok(file::check_owners(&java, process::effective_uid())?)
    }
}

/// Value of a line `KEY="value"`.
fn property(release: &str, key: &str) -> Option<String> {
    release.lines().find_map(|line| {
        let value = line.trim().strip_prefix(key)?.strip_prefix('=')?;
        Some(value.trim_matches('"').to_owned())
    })
}

/// Feature release: 17 of `17.0.15`, 8 of `1.8.0_392`, 26 of `26-ea`.
fn major(version: &str) -> Option<u32> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match numbers.next()?.ok()? {
        1 => numbers.next()?.ok(),
        first => Some(first),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io, os::unix::fs::symlink};

    use proptest::prelude::*;

    use super::*;

    fn install(root: &Path, home: &str, release: &str) -> io::Result<()> {
        fs::create_dir_all(root.join(home).join("bin"))?;
        fs::write(root.join(home).join("bin/java"), "")?;
        fs::write(root.join(home).join("release"), release)
    }

    #[test]
    fn every_jdk_is_found_once_and_the_one_of_path_is_known() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        install(
            dir.path(),
            "usr/lib/jvm/java-17-openjdk-amd64",
            "IMPLEMENTOR=\"Debian\"\nJAVA_VERSION=\"17.0.15\"\nMODULES=\"java.base jdk.compiler\"\n",
        )?;
        install(dir.path(), "opt/java/openjdk", "JAVA_VERSION=\"21.0.8\"\nMODULES=\"java.base\"\n")?;
        install(dir.path(), "usr/local/openjdk-8", "JAVA_VERSION=\"1.8.0_392\"\n")?;
        install(dir.path(), "opt/broken", "JAVA_VERSION=\"x\"\n")?;
        fs::create_dir_all(dir.path().join("usr/lib/jvm/openjdk-17"))?;
        symlink("java-17-openjdk-amd64", dir.path().join("usr/lib/jvm/java-1.17.0"))?;
        fs::create_dir_all(dir.path().join("usr/bin"))?;
        fs::create_dir_all(dir.path().join("etc/alternatives"))?;
        symlink("/etc/alternatives/java", dir.path().join("usr/bin/java"))?;
        symlink("/usr/lib/jvm/java-1.17.0/bin/java", dir.path().join("etc/alternatives/java"))?;

        let root = Root::at(dir.path()).recording();
        let jdks = find(&root, &Environment::of_this_process());
        let seen: Vec<_> = jdks.iter().map(|j| (j.major, j.home.to_string_lossy(), j.default)).collect();
        assert_eq!(
            seen,
            [
                (21, "/opt/java/openjdk".into(), false),
                (17, "/usr/lib/jvm/java-17-openjdk-amd64".into(), true),
                (8, "/usr/local/openjdk-8".into(), false),
            ]
        );
        let compilers: Vec<_> = jdks.iter().map(|j| j.has_compiler.known().copied()).collect();
        assert_eq!(compilers, [Some(false), Some(true), None]);
        assert_eq!(jdks[1].implementor.as_deref(), Some("Debian"));
        assert_eq!(jdks[1].java, Path::new("/usr/lib/jvm/java-17-openjdk-amd64/bin/java"));

        let copy = tempfile::tempdir()?;
        root.recorded().write(copy.path(), false)?;
        assert_eq!(find(&Root::at(copy.path()), &Environment::default()), jdks);
        Ok(())
    }

    #[test]
    fn the_feature_release_is_read_from_every_scheme() {
        for (version, expected) in
            [("17.0.15", Some(17)), ("1.8.0_392", Some(8)), ("26-ea", Some(26)), ("", None), ("1", None)]
        {
            assert_eq!(major(version), expected, "{version}");
        }
    }

    proptest! {
        #[test]
        fn no_release_file_makes_it_panic(text in any::<String>()) {
            let _ = property(&text, "JAVA_VERSION").and_then(|version| major(&version));
            let _ = major(&text);
        }
    }
}
