//! Control groups as found on real machines, built in a folder.

use proptest::prelude::*;

use super::*;
use crate::testing::tree;

const V2_MOUNT: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

fn huge() -> Vec<PageSize> {
    ["2m", "1g"].iter().filter_map(|text| text.parse().ok()).collect()
}

fn known<T: Clone>(limit: &Reading<Option<T>>) -> Option<T> {
    limit.known().cloned().flatten()
}

#[test]
fn the_limit_of_all_ancestors_that_leaves_least_is_read_with_its_file() {
    let (_dir, root) = tree(&[
        (CGROUP, "0::/a.slice/b.service\n"),
        (MOUNTINFO, V2_MOUNT),
        ("sys/fs/cgroup/a.slice/b.service/cgroup.procs", ""),
        ("sys/fs/cgroup/a.slice/b.service/memory.max", "8192\n"),
        ("sys/fs/cgroup/a.slice/b.service/memory.current", "0\n"),
        ("sys/fs/cgroup/a.slice/b.service/memory.stat", "inactive_file 0\nactive_file 0\n"),
        ("sys/fs/cgroup/a.slice/memory.max", "1073741824\n"),
        ("sys/fs/cgroup/a.slice/memory.current", "1073739776\n"),
        ("sys/fs/cgroup/a.slice/memory.stat", "file 9\ninactive_file 1024\nactive_file 1024\n"),
        ("sys/fs/cgroup/a.slice/b.service/hugetlb.2MB.max", "2097152\n"),
        ("sys/fs/cgroup/a.slice/hugetlb.2MB.max", "0\n"),
        ("sys/fs/cgroup/a.slice/hugetlb.2MB.rsvd.max", "4194304\n"),
    ]);
    let limits = read(&root, &huge());
    let memory = known(&limits.memory).map(|l| (l.bytes, l.left, l.file));
    let file = PathBuf::from("sys/fs/cgroup/a.slice/memory.max");
    assert_eq!(memory, Some((Bytes(1 << 30), Reading::Known(Bytes(4096)), file)));
    let available = |bytes| limits.available_memory(&Reading::Known(Bytes(bytes)));
    assert_eq!(available(1 << 40), Reading::Known(Bytes(4096)));
    assert_eq!(available(1024), Reading::Known(Bytes(1024)));
    let touch = known(&limits.hugetlb[0].touch);
    assert_eq!(touch.as_ref().map(|l| l.bytes), Some(Bytes::ZERO));
    assert!(touch.is_some_and(|l| l.used.reason().is_some() && l.left == Reading::Known(Bytes::ZERO)));
    assert_eq!(known(&limits.hugetlb[0].reserve).map(|l| l.bytes), Some(Bytes(4 << 20)));
    assert_eq!(limits.hugetlb[1].touch, Reading::Known(None));
    assert_eq!(limits.memory_group.known().map(|g| g.hidden_above), Some(false));
}

/// A limit may be reached if the usage below it, or the page cache in that usage, is unknown.
#[test]
fn an_unknown_usage_is_not_zero() {
    let group = |more: &[(&str, &str)]| {
        let mut files = vec![
            (CGROUP, "4:memory:/a\n"),
            (MOUNTINFO, "35 31 0:32 / /cg rw - cgroup cgroup rw,memory\n"),
            ("cg/a/cgroup.procs", ""),
            ("cg/a/memory.limit_in_bytes", "8192\n"),
        ];
        files.extend(more);
        let (_dir, root) = tree(&files);
        read(&root, &[]).available_memory(&Reading::Known(Bytes(1 << 30)))
    };
    let usage = ("cg/a/memory.usage_in_bytes", "8192\n");
    let stat = ("cg/a/memory.stat", "inactive_file 1\ntotal_inactive_file 4096\ntotal_active_file 0\n");
    assert_eq!(group(&[usage, stat]), Reading::Known(Bytes(4096)));
    assert!(group(&[stat]).reason().is_some_and(|why| why.contains("memory.usage_in_bytes")));
    assert!(group(&[usage]).reason().is_some_and(|why| why.contains("memory.stat")));
    assert!(group(&[usage, ("cg/a/memory.stat", "rss 1\n")]).reason().is_some());
}

#[test]
fn v1_and_v2_live_side_by_side() {
    let (_dir, root) = tree(&[
        (CGROUP, "4:hugetlb,memory:/api/x y\n1:name=systemd:/\n0::/\n"),
        (
            MOUNTINFO,
            "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
             35 31 0:32 /api /mnt/mem\\040ory rw - cgroup cgroup rw,memory,hugetlb\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        ),
        ("mnt/mem ory/x y/cgroup.procs", ""),
        ("mnt/mem ory/x y/memory.limit_in_bytes", "9223372036854771712\n"),
        ("mnt/mem ory/memory.limit_in_bytes", "8192\n"),
        ("mnt/mem ory/x y/hugetlb.1GB.limit_in_bytes", "0\n"),
        ("mnt/mem ory/x y/hugetlb.2MB.limit_in_bytes", "9223372036852678656\n"),
    ]);
    let limits = read(&root, &huge());
    let group = limits.memory_group.known().cloned();
    assert_eq!(group.map(|g| (g.version, g.hidden_above)), Some((Version::V1, true)));
    assert_eq!(known(&limits.memory).map(|l| l.bytes), Some(Bytes(8192)));
    assert_eq!(limits.hugetlb[0].touch, Reading::Known(None));
    assert_eq!(known(&limits.hugetlb[1].touch).map(|l| l.bytes), Some(Bytes::ZERO));
}

#[test]
fn an_old_v1_group_that_does_not_count_for_those_below_is_left_out() {
    let (_dir, root) = tree(&[
        (CGROUP, "4:memory:/a\n"),
        (MOUNTINFO, "35 31 0:32 / /cg rw - cgroup cgroup rw,memory\n"),
        ("cg/a/cgroup.procs", ""),
        ("cg/memory.use_hierarchy", "0\n"),
        ("cg/memory.limit_in_bytes", "1\n"),
    ]);
    assert_eq!(read(&root, &[]).memory, Reading::Known(None));
}

#[test]
fn a_container_knows_that_there_may_be_more_above() {
    let (_dir, root) = tree(&[
        (CGROUP, "0::/\n"),
        (MOUNTINFO, V2_MOUNT),
        ("sys/fs/cgroup/cgroup.procs", ""),
        ("sys/fs/cgroup/cgroup.type", "domain\n"),
        ("sys/fs/cgroup/memory.max", "536870912\n"),
    ]);
    let limits = read(&root, &[]);
    assert_eq!(limits.memory_group.known().map(|g| g.hidden_above), Some(true));
    assert_eq!(known(&limits.memory).map(|l| l.bytes), Some(Bytes(512 << 20)));
}

#[test]
fn what_cannot_be_seen_is_not_unlimited() {
    let procs = ("sys/fs/cgroup/cgroup.procs", "");
    for (files, why) in [
        (vec![], "No such file"),
        (vec![(CGROUP, "0::/\n"), (MOUNTINFO, "")], "not mounted"),
        (vec![(CGROUP, "0::/../other\n"), (MOUNTINFO, V2_MOUNT), procs], "outside"),
        (vec![(CGROUP, "0::/gone\n"), (MOUNTINFO, V2_MOUNT), procs], "not visible"),
        (vec![(CGROUP, "1:name=systemd:/\n"), (MOUNTINFO, V2_MOUNT), procs], "no control group"),
        (
            vec![(CGROUP, "0::/\n"), (MOUNTINFO, V2_MOUNT), procs, ("sys/fs/cgroup/memory.max", "many\n")],
            "'many'",
        ),
    ] {
        let (_dir, root) = tree(&files);
        let memory = read(&root, &[]).memory;
        assert!(memory.reason().is_some_and(|reason| reason.contains(why)), "{why}: {memory:?}");
    }
}

#[test]
fn sizes_have_the_kernels_names() {
    let names: Vec<_> = ["64k", "2m", "512m", "1g", "16g"]
        .iter()
        .filter_map(|text| text.parse().ok().map(controller_name))
        .collect();
    assert_eq!(names, ["64KB", "2MB", "512MB", "1GB", "16GB"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_makes_it_panic(cgroup in any::<String>(), mounts in any::<String>(), limit in any::<String>()) {
        let (_dir, root) = tree(&[(CGROUP, &cgroup), (MOUNTINFO, &mounts)]);
        let _ = read(&root, &huge());
        let _ = mounts::parse(&mounts).count();
        let (_dir, root) = tree(&[
            (CGROUP, "0::/"),
            (MOUNTINFO, V2_MOUNT),
            ("sys/fs/cgroup/cgroup.procs", ""),
            ("sys/fs/cgroup/memory.max", &limit),
        ]);
        let _ = read(&root, &huge());
    }
}
