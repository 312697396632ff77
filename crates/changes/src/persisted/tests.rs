//! The configuration files, in temporary folders.

use std::{error::Error, os::unix::fs::symlink};

use hugewise_linux::{settings::Knob, testing::tree, units::Bytes};
use proptest::prelude::*;

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

const SYSCTL: &str = "sysctl.d/60-hugewise.conf";
const TMPFILES: &str = "tmpfiles.d/hugewise.conf";

/// A machine with a default huge page size of 2 MiB, and its /etc.
fn machine() -> (tempfile::TempDir, Root, PathBuf) {
    let (dir, root) =
        tree(&[("proc/meminfo", "Hugepagesize: 2048 kB\n"), ("etc/sysctl.d/99-sysctl.conf", "# theirs\n")]);
    let etc = root.path("etc");
    (dir, root, etc)
}

fn pool(log2: u32, node: Option<u32>, pages: &str) -> (Setting, String) {
    let page_size = PageSize::new(Bytes(1 << log2)).unwrap_or_else(|_| unreachable!());
    (Setting::Pool { page_size, node }, pages.to_owned())
}

fn persist(root: &Root, etc: &Path, settings: &[(Setting, String)]) -> Result<Vec<PathBuf>, PersistError> {
    ConfigFiles::prepare(root, etc, settings, false)?.write()
}

fn body(path: PathBuf) -> io::Result<Vec<String>> {
    Ok(fs::read_to_string(path)?.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect())
}

#[test]
fn each_setting_is_in_the_file_read_at_boot() -> TestResult {
    let (_dir, root, etc) = machine();
    let defrag = Setting::Khugepaged { knob: Knob::Defrag };
    let settings = [
        pool(21, None, "1000"),
        pool(30, None, "2"),
        (Setting::ShmGroup, "1001".to_owned()),
        (Setting::ThpDefrag, "defer+madvise".to_owned()),
        (defrag, "0".to_owned()),
    ];
    assert_eq!(persist(&root, &etc, &settings)?, [etc.join(SYSCTL), etc.join(TMPFILES)]);
    assert_eq!(body(etc.join(SYSCTL))?, ["vm.hugetlb_shm_group = 1001", "vm.nr_hugepages = 1000"]);
    assert_eq!(
        body(etc.join(TMPFILES))?,
        [
            "w! /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages - - - - 2",
            "w! /sys/kernel/mm/transparent_hugepage/defrag - - - - defer+madvise",
            "w! /sys/kernel/mm/transparent_hugepage/khugepaged/defrag - - - - 0",
        ]
    );
    assert_eq!(fs::metadata(etc.join(TMPFILES))?.permissions().mode() & 0o7777, 0o644);
    assert_eq!(remove(&etc, false).files, [etc.join(SYSCTL), etc.join(TMPFILES)]);
    assert_eq!(remove(&etc, false), Removed::default(), "the second call removes nothing");
    assert_eq!(fs::read_dir(etc.join("sysctl.d"))?.count(), 1, "only the foreign file remains");
    Ok(())
}

#[test]
fn calls_are_merged_and_the_last_value_wins() -> TestResult {
    let (_dir, root, etc) = machine();
    persist(&root, &etc, &[pool(21, Some(1), "5"), pool(30, Some(1), "1")])?;
    persist(&root, &etc, &[pool(21, None, "10"), (Setting::ShmAll, "7".to_owned())])?;
    persist(&root, &etc, &[pool(21, None, "20")])?;
    assert_eq!(body(etc.join(SYSCTL))?, ["kernel.shmall = 7", "vm.nr_hugepages = 20"]);
    // The line for one node would undo the value for all nodes at boot.
    assert_eq!(
        body(etc.join(TMPFILES))?,
        ["w! /sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages - - - - 1"]
    );
    Ok(())
}

#[test]
fn foreign_and_edited_files_are_skipped() -> TestResult {
    let (_dir, root, etc) = machine();
    let settings = [pool(21, None, "1000")];
    let path = etc.join(SYSCTL);
    fs::write(&path, "vm.nr_hugepages = 3\n")?;
    assert!(matches!(persist(&root, &etc, &settings), Err(PersistError::Foreign(_))));
    assert_eq!((remove(&etc, true), present(&etc)), (Removed::default(), vec![]));
    assert_eq!(fs::read_to_string(&path)?, "vm.nr_hugepages = 3\n");
    ConfigFiles::prepare(&root, &etc, &settings, true)?.write()?;
    assert_eq!(body(path.clone())?, ["vm.nr_hugepages = 1000"]);

    let edited = fs::read_to_string(&path)?.replace("1000", "2000");
    fs::write(&path, &edited)?;
    assert!(matches!(persist(&root, &etc, &settings), Err(PersistError::Edited(_))));
    assert_eq!((remove(&etc, false).left.len(), present(&etc).len()), (1, 1));
    assert_eq!(fs::read_to_string(&path)?, edited);
    assert_eq!(remove(&etc, true).files.len(), 1);
    Ok(())
}

#[test]
fn no_link_is_followed() -> TestResult {
    let (dir, root, etc) = machine();
    let settings = [pool(21, None, "1000"), (Setting::ThpDefrag, "never".to_owned())];
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious")?;
    symlink(&victim, etc.join(SYSCTL))?;
    assert!(matches!(persist(&root, &etc, &settings), Err(PersistError::Foreign(_))));
    symlink(&victim, etc.join("sysctl.d/60-hugewise.draft"))?;
    ConfigFiles::prepare(&root, &etc, &settings, true)?.write()?;
    assert_eq!(fs::read_to_string(&victim)?, "precious");
    assert!(fs::symlink_metadata(etc.join(SYSCTL))?.is_file());

    fs::rename(etc.join("tmpfiles.d"), dir.path().join("elsewhere"))?;
    symlink(dir.path().join("elsewhere"), etc.join("tmpfiles.d"))?;
    let refused = persist(&root, &etc, &settings).err().ok_or("followed a link")?;
    assert!(refused.to_string().contains("is a symbolic link"), "{refused}");
    Ok(())
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(text in any::<String>(), body in any::<String>()) {
        let _ = parse(&text);
        let _ = parse(&format!("{HEADER}\n{text}"));
        let summed = format!("{HEADER}\n{CHECKSUM}{:016x}\n{body}", checksum(&body));
        prop_assert!(matches!(parse(&summed), FileContent::Ours(_)));
    }
}
