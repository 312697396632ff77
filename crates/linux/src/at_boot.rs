//! Settings of huge pages that services, configuration files and the kernel's command line make at boot.
//!
//! Sources: systemd.unit(5), tmpfiles.d(5), sysctl.d(5), tuned.conf(5),
//! Documentation/admin-guide/kernel-parameters.txt of the kernel.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{hugepages::thp, root::Root};

/// Folders of units, the first of several units of one name counts.
const UNITS: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];
/// Folders of other configuration.
const CONFIGURATION: [&str; 4] = ["etc", "run", "usr/local/lib", "usr/lib"];
/// Longest script that is read, in bytes.
const MAX_SCRIPT_BYTES: u64 = 1 << 16;
/// Largest number of TuneD profiles that include each other.
const MAX_PROFILES: usize = 8;
/// Values of the settings of THP.
const WORDS: [&str; 9] =
    ["always", "madvise", "never", "defer", "defer+madvise", "within_size", "advise", "inherit", "deny"];

/// A setting that is made at boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BootSetting {
    /// The file of the setting, relative to the root: of /sys or /proc.
    pub setting: PathBuf,
    /// The value; null if it cannot be read from the line.
    pub value: Option<String>,
    /// The file that makes it, relative to the root.
    pub file: PathBuf,
}

/// Everything that makes a setting of huge pages at boot, as far as it is found; the order in which it takes effect is
/// not decided.
pub fn read(root: &Root) -> Vec<BootSetting> {
    let mut found = command_line(root);
    found.extend(services(root));
    for (path, text) in configuration(root, "tmpfiles.d") {
        found.extend(text.lines().filter_map(|line| tmpfiles_line(line, &path)));
    }
    let sysctl = root.read("etc/sysctl.conf").map(|text| ("etc/sysctl.conf".into(), text));
    for (path, text) in configuration(root, "sysctl.d").into_iter().chain(sysctl) {
        found.extend(text.lines().filter_map(|line| sysctl_line(line, &path)));
    }
    found.extend(tuned(root));
    for path in ["etc/rc.local", "etc/rc.d/rc.local"] {
        found.extend(writes(&root.read(path).unwrap_or_default(), Path::new(path)));
    }
    let mut once: Vec<BootSetting> = Vec::new();
    for setting in found {
        if !once.contains(&setting) {
            once.push(setting);
        }
    }
    once
}

fn pools() -> PathBuf {
    "proc/sys/vm/nr_hugepages".into()
}

fn command_line(root: &Root) -> Vec<BootSetting> {
    let file = Path::new("proc/cmdline");
    let text = root.read(file).unwrap_or_default();
    let setting = |word: &str| {
        let (name, value) = word.split_once('=')?;
        let setting = match name {
            "transparent_hugepage" => thp::path("enabled"),
            "transparent_hugepage_shmem" => thp::path("shmem_enabled"),
            _ => return None,
        };
        Some(BootSetting { setting, value: Some(value.to_owned()), file: file.to_owned() })
    };
    text.split_whitespace().filter_map(setting).collect()
}

/// Files named `*.conf` in the folders of one kind; the first of several files of one name counts.
fn configuration(root: &Root, kind: &str) -> Vec<(PathBuf, String)> {
    files(root, &CONFIGURATION.map(|folder| Path::new(folder).join(kind)), ".conf")
}

fn files(root: &Root, folders: &[PathBuf], end: &str) -> Vec<(PathBuf, String)> {
    let mut names: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for folder in folders {
        for name in root.list(folder).unwrap_or_default() {
            if name.ends_with(end) && !names.contains(&name) {
                let path = folder.join(&name);
                found.extend(root.read(&path).map(|text| (path, text)));
                names.push(name);
            }
        }
    }
    found
}

/// What the services that a target starts write, in ExecStart and in the scripts that it names.
fn services(root: &Root) -> Vec<BootSetting> {
    let folders = UNITS.map(PathBuf::from);
    let mut started: Vec<String> = Vec::new();
    for folder in &folders {
        let targets = root.list(folder).unwrap_or_default();
        for target in targets.iter().filter(|name| name.ends_with(".wants") || name.ends_with(".requires")) {
            started.extend(root.list(folder.join(target)).unwrap_or_default());
        }
    }
    let mut found = Vec::new();
    for (path, text) in files(root, &folders, ".service") {
        let is_started = path.file_name().is_some_and(|name| started.iter().any(|one| name == one.as_str()));
        if !is_started {
            continue;
        }
        let joined = text.replace("\\\n", " ");
        for line in joined.lines().filter_map(|line| line.trim().strip_prefix("ExecStart")) {
            let line = line.split_once('=').map_or("", |(_, line)| line);
            found.extend(writes(line, &path));
            let program = line.trim_start_matches(['-', '@', '+', '!', ':', ' ']).split_whitespace().next();
            for script in program.into_iter().chain(line.split_whitespace().nth(1)) {
                found.extend(script_writes(root, script));
            }
        }
    }
    found
}

/// What a script writes; empty for other files.
fn script_writes(root: &Root, path: &str) -> Vec<BootSetting> {
    let Some(path) = path.strip_prefix('/').map(Path::new) else { return Vec::new() };
    // What is shown by a capture is small; a program is not read.
    let is_script = root.beginning(path, 2).is_ok_and(|beginning| beginning == b"#!");
    let text =
        if is_script { root.read_within(path, MAX_SCRIPT_BYTES).unwrap_or_default() } else { Vec::new() };
    writes(&String::from_utf8_lossy(&text), path)
}

/// The settings of THP and of pools that shell text writes.
fn writes(text: &str, file: &Path) -> Vec<BootSetting> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        for command in line.split([';', '\'', '"']).flat_map(|part| part.split("&&")) {
            let sysctls = command.split_whitespace().filter_map(|word| sysctl_line(word, file));
            found.extend(sysctls);
            // A line that only tests for the file writes nothing.
            if !command.contains('>') && !command.contains("tee ") {
                continue;
            }
            let targets = command.split([' ', '>', '=', ',']).filter_map(setting_of);
            for setting in targets {
                found.push(BootSetting { setting, value: value_of(line), file: file.to_owned() });
            }
        }
    }
    found
}

/// The setting with this path, relative to the root.
fn setting_of(path: &str) -> Option<PathBuf> {
    let path = path.trim_end_matches([')', '\'', '"']).strip_prefix('/')?;
    let is_thp = path.starts_with("sys/kernel/mm/") && path.contains("transparent_hugepage/");
    let is_pool = path.ends_with("/nr_hugepages");
    // The folder's name in Red Hat Enterprise Linux 6.
    (is_thp || is_pool).then(|| path.replace("redhat_transparent_hugepage", "transparent_hugepage").into())
}

/// The value that a line writes: a word of THP, or a number.
fn value_of(line: &str) -> Option<String> {
    let mut words = line.split([' ', '\'', '"', '>', '|', '(', ')', ';']).filter(|word| !word.is_empty());
    words
        .find(|word| WORDS.contains(word) || word.bytes().all(|byte| byte.is_ascii_digit()))
        .map(str::to_owned)
}

/// `w /sys/kernel/mm/transparent_hugepage/enabled - - - - never`
fn tmpfiles_line(line: &str, file: &Path) -> Option<BootSetting> {
    let mut words = line.split_whitespace();
    let setting = words.next().filter(|kind| kind.starts_with(['w', 'f', 'F'])).and(words.next())?;
    let setting = setting_of(setting)?;
    Some(BootSetting { setting, value: words.nth(4).map(str::to_owned), file: file.to_owned() })
}

/// `vm.nr_hugepages = 1024`
fn sysctl_line(line: &str, file: &Path) -> Option<BootSetting> {
    let (name, value) = line.trim().trim_start_matches('-').split_once('=')?;
    let name = name.trim().replace('/', ".");
    let known = [
        "vm.nr_hugepages",
        "vm.nr_overcommit_hugepages",
        "vm.hugetlb_shm_group",
        "kernel.shmmax",
        "kernel.shmall",
    ];
    let setting = Path::new("proc/sys").join(name.replace('.', "/"));
    known.contains(&name.as_str()).then(|| BootSetting {
        setting,
        value: Some(value.trim().to_owned()),
        file: file.to_owned(),
    })
}

/// The settings of the active TuneD profile and those that it includes.
fn tuned(root: &Root) -> Vec<BootSetting> {
    let active = root.read("etc/tuned/active_profile").unwrap_or_default();
    let mut profiles: Vec<String> = active.split_whitespace().map(str::to_owned).collect();
    let mut found = Vec::new();
    let mut next = 0;
    while let Some(name) =
        profiles.get(next).filter(|name| next < MAX_PROFILES && !name.contains('/')).cloned()
    {
        next += 1;
        let folders = ["etc/tuned/profiles", "etc/tuned", "usr/lib/tuned/profiles", "usr/lib/tuned"];
        let paths = folders.map(|folder| Path::new(folder).join(&name).join("tuned.conf"));
        let Some((path, text)) =
            paths.into_iter().find_map(|path| root.read(&path).ok().map(|text| (path, text)))
        else {
            continue;
        };
        for line in text.lines() {
            let Some((key, value)) = line.split_once('=') else { continue };
            match (key.trim(), value.trim()) {
                ("include", value) => profiles
                    .extend(value.split([' ', ',']).filter(|name| !name.is_empty()).map(str::to_owned)),
                ("transparent_hugepages" | "transparent_hugepage", value) => {
                    found.push(BootSetting {
                        setting: thp::path("enabled"),
                        value: Some(value.to_owned()),
                        file: path.clone(),
                    });
                }
                (key, value) if setting_of(key).is_some() => {
                    let setting = setting_of(key).unwrap_or_else(pools);
                    found.push(BootSetting { setting, value: Some(value.to_owned()), file: path.clone() });
                }
                _ => found.extend(sysctl_line(line, &path)),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tree;

    #[test]
    fn each_kind_of_file_is_found() {
        let unit = "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo never | tee /sys/kernel/mm/transparent_hugepage/enabled > /dev/null'\n";
        let (_dir, root) = tree(&[
            ("proc/cmdline", "quiet transparent_hugepage=always\n"),
            ("etc/systemd/system/thp-off.service", unit),
            ("etc/systemd/system/basic.target.wants/thp-off.service", unit),
            ("usr/lib/systemd/system/unused.service", unit),
            ("etc/systemd/system/by-script.service", "[Service]\nExecStart=-/usr/local/bin/off.sh\n"),
            ("etc/systemd/system/basic.target.wants/by-script.service", ""),
            (
                "usr/local/bin/off.sh",
                "#!/bin/sh\n# echo always > /sys/kernel/mm/transparent_hugepage/enabled\necho defer >/sys/kernel/mm/transparent_hugepage/defrag\n",
            ),
            (
                "usr/lib/tmpfiles.d/thp.conf",
                "w /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none - - - - 0\n",
            ),
            ("etc/sysctl.d/99-pages.conf", "# vm.nr_hugepages = 1\nvm.nr_hugepages = 6144\n"),
            ("etc/tuned/active_profile", "mine\n"),
            ("etc/tuned/mine/tuned.conf", "[main]\ninclude=base\n"),
            ("usr/lib/tuned/base/tuned.conf", "[vm]\ntransparent_hugepages=never\n"),
            (
                "etc/rc.local",
                "#!/bin/sh\nif test -f /sys/kernel/mm/redhat_transparent_hugepage/enabled; then\n  echo never > /sys/kernel/mm/redhat_transparent_hugepage/enabled\nfi\n",
            ),
        ]);
        let found: Vec<String> = read(&root)
            .iter()
            .map(|one| {
                let name = one.setting.file_name().unwrap_or_default().to_string_lossy();
                format!("{}: {name} {}", one.file.display(), one.value.as_deref().unwrap_or("?"))
            })
            .collect();
        for expected in [
            "proc/cmdline: enabled always",
            "etc/systemd/system/thp-off.service: enabled never",
            "usr/local/bin/off.sh: defrag defer",
            "usr/lib/tmpfiles.d/thp.conf: max_ptes_none 0",
            "etc/sysctl.d/99-pages.conf: nr_hugepages 6144",
            "usr/lib/tuned/base/tuned.conf: enabled never",
            "etc/rc.local: enabled never",
        ] {
            assert!(found.iter().any(|one| one == expected), "{expected}: {found:?}");
        }
        assert!(!found.iter().any(|one| one.contains("unused") || one.ends_with('?')), "{found:?}");
        assert!(!found.iter().any(|one| one.contains("off.sh: enabled")), "{found:?}");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in any::<String>()) {
            let _ = writes(&text, Path::new("a"));
            let _ = text.lines().filter_map(|line| sysctl_line(line, Path::new("a"))).count();
            let _ = text.lines().filter_map(|line| tmpfiles_line(line, Path::new("a"))).count();
        }
    }
}
