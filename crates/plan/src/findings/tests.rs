//! A machine without findings, and the findings after one change to it.

use std::{fs, path::Path};

use hugewise_jvm::jdks::{self, Environment};
use hugewise_linux::{hugepages::contiguity::Scan, root::Root};

use super::*;

const POOL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";
const THP: &str = "sys/kernel/mm/transparent_hugepage";
const GROUP: &str = "sys/fs/cgroup/a";
/// Stands for a removed file.
const GONE: &str = "(gone)";

fn healthy() -> Vec<(String, String)> {
    let pool = |name: &str, value: &str| (format!("{POOL}/{name}"), value.to_owned());
    let thp = |name: &str, value: &str| (format!("{THP}/{name}"), value.to_owned());
    let file = |path: &str, value: &str| (path.to_owned(), value.to_owned());
    let auxv: Vec<u8> = [6u64, 4096].into_iter().flat_map(u64::to_ne_bytes).collect();
    vec![
        file(
            "proc/meminfo",
            "MemTotal: 16777216 kB\nMemFree: 8388608 kB\nMemAvailable: 9388608 kB\nHugepagesize: 2048 kB\n",
        ),
        file("proc/buddyinfo", "Node 0, zone Normal 0 0 0 0 0 0 0 0 0 0 2000\n"),
        file("proc/self/auxv", &String::from_utf8_lossy(&auxv)),
        file("proc/self/status", "Uid: 7 7 7 7\nGid: 7 7 7 7\nGroups: 27\nCapEff: 0000000000000000\n"),
        file("proc/self/limits", "Max locked memory 8388608 8388608 bytes\n"),
        file("proc/self/cgroup", "0::/a\n"),
        file("proc/self/mountinfo", "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 none rw\n"),
        (format!("{GROUP}/cgroup.procs"), String::new()),
        file("proc/sys/vm/hugetlb_shm_group", "27"),
        file("proc/sys/kernel/shmmax", "18446744073692774399"),
        file("proc/sys/kernel/shmall", "18446744073692774399"),
        file("proc/sys/kernel/perf_event_paranoid", "2"),
        file("sys/bus/event_source/devices/cpu/type", "4"),
        pool("nr_hugepages", "512"),
        pool("free_hugepages", "512"),
        pool("resv_hugepages", "512"),
        pool("surplus_hugepages", "0"),
        pool("nr_overcommit_hugepages", "0"),
        thp("enabled", "always [madvise] never"),
        thp("defrag", "always defer defer+madvise [madvise] never"),
        thp("shmem_enabled", "always within_size [advise] never deny force"),
        thp("hpage_pmd_size", "2097152"),
        thp("khugepaged/max_ptes_none", "511"),
        file("opt/jdk/bin/java", ""),
        file("opt/jdk/release", "JAVA_VERSION=\"21.0.8\"\n"),
    ]
}

/// Findings on the healthy machine with these files changed.
fn found(changes: &[(&str, &str)]) -> Vec<Finding> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut files = healthy();
    files.extend(changes.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())));
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a folder");
        if text == GONE { fs::remove_file(path) } else { fs::write(path, text) }.expect("a file");
    }
    let root = Root::at(dir.path());
    findings(&Facts::gather(&root, Scan::IfQuick), &jdks::find(&root, &Environment::default()))
}

/// The command of the first action.
fn first_command(finding: &Finding) -> &str {
    finding.actions.first().and_then(|action| action.command.as_deref()).unwrap_or_default()
}

#[test]
fn nothing_is_found_on_a_healthy_machine() {
    assert_eq!(found(&[]), []);
}

#[test]
fn every_finding_has_its_cause_and_its_cure() {
    let free_pool = (format!("{POOL}/resv_hugepages"), "0".to_owned());
    let in_pool = |name: &str| format!("{POOL}/{name}");
    let in_thp = |name: &str| format!("{THP}/{name}");
    let in_group = |name: &str| format!("{GROUP}/{name}");
    let scattered =
        ("proc/buddyinfo".to_owned(), "Node 0, zone Normal 2000000 0 0 0 0 0 0 0 0 3 0\n".to_owned());
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    for (changes, id, severity, command) in [
        (
            vec![(in_thp("enabled"), "always madvise [never]".to_owned())],
            "thp-off",
            Severity::Warning,
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        (
            vec![(in_thp("hugepages-2048kB/enabled"), "always inherit madvise [never]".to_owned())],
            "thp-off",
            Severity::Warning,
            "echo inherit | sudo tee /sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled",
        ),
        (
            vec![
                (in_thp("enabled"), "[always] madvise never".to_owned()),
                (in_thp("khugepaged/max_ptes_none"), "64".to_owned()),
            ],
            "thp-always",
            Severity::Info,
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        (
            vec![(in_thp("shmem_enabled"), "always advise [never]".to_owned())],
            "zgc-needs-shmem",
            Severity::Info,
            "echo advise | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled",
        ),
        (
            vec![scattered.clone(), (in_thp("defrag"), "always [defer] never".to_owned())],
            "memory-fragmented",
            Severity::Warning,
            "echo 1 | sudo tee /proc/sys/vm/compact_memory",
        ),
        (
            vec![
                (in_pool("nr_hugepages"), "0".to_owned()),
                (in_pool("free_hugepages"), "0".to_owned()),
                free_pool.clone(),
            ],
            "pool-empty",
            Severity::Info,
            "sudo sysctl -w vm.nr_hugepages=512",
        ),
        (
            vec![(in_pool("resv_hugepages"), "112".to_owned())],
            "pool-idle",
            Severity::Info,
            "echo 112 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        ),
        (
            vec![file("proc/self/status", "Uid: 7 7 7 7\nGid: 8 8 8 8\nGroups:\nCapEff: 0\n")],
            "shm-group",
            Severity::Info,
            "sudo sysctl -w vm.hugetlb_shm_group=8",
        ),
        (
            vec![file("proc/sys/kernel/shmmax", "33554432")],
            "shmmax-small",
            Severity::Warning,
            "sudo sysctl -w kernel.shmmax=18446744073692774399",
        ),
        (
            vec![file("proc/sys/kernel/perf_event_paranoid", "4")],
            "tlb-counters-forbidden",
            Severity::Info,
            "sudo sysctl -w kernel.perf_event_paranoid=2",
        ),
        (
            vec![
                file("sys/bus/event_source/devices/cpu/type", GONE),
                file("sys/bus/event_source/devices/software/type", "1"),
            ],
            "no-tlb-counters",
            Severity::Info,
            "",
        ),
        (vec![file("opt/jdk/release", GONE)], "no-jdk", Severity::Info, ""),
        (vec![(in_group("memory.max"), "1073741824".to_owned())], "cgroup-memory-limit", Severity::Info, ""),
        (
            vec![
                (in_group("memory.max"), "1073741824".to_owned()),
                (in_group("memory.current"), "1073741823".to_owned()),
                (in_group("memory.stat"), "inactive_file 4096\nactive_file 0\n".to_owned()),
            ],
            "cgroup-memory-limit",
            Severity::Warning,
            "",
        ),
        (
            vec![
                file("sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "512"),
                file("sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "512"),
                file("sys/devices/system/node/node0/hugepages/hugepages-2048kB/surplus_hugepages", "0"),
                file("sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", "0"),
                file("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "0"),
                file("sys/devices/system/node/node1/hugepages/hugepages-2048kB/surplus_hugepages", "0"),
            ],
            "pool-not-on-every-node",
            Severity::Info,
            "",
        ),
    ] {
        let changes: Vec<_> = changes.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let found = found(&changes);
        let seen: Vec<_> = found.iter().map(|f| (f.id, f.severity, first_command(f))).collect();
        assert_eq!(seen, [(id, severity, command)], "{changes:?}");
        assert!(found.iter().all(|f| !f.evidence.is_empty() && !f.detail.is_empty()));
    }
}

#[test]
fn a_limit_below_the_pool_is_a_problem_only_where_nothing_is_left() {
    let resv = format!("{POOL}/resv_hugepages");
    let file = |name: &str| format!("{GROUP}/hugetlb.2MB.{name}");
    let of_limits = |limits: &[(&str, &str)]| {
        let limits: Vec<_> = limits.iter().map(|&(name, value)| (file(name), value)).collect();
        let mut changes = vec![(resv.as_str(), "0")];
        changes.extend(limits.iter().map(|(path, value)| (path.as_str(), *value)));
        let found = found(&changes).into_iter().find(|f| f.id == "cgroup-hugetlb-limit");
        found.map(|f| (f.severity, f.detail.contains("SIGBUS"), first_command(&f).to_owned()))
    };
    let fix = |name: &str| format!("echo max | sudo tee /{}", file(name));
    assert_eq!(of_limits(&[("max", "max")]), None);
    assert_eq!(of_limits(&[("max", "1073741824"), ("current", "0")]), None);
    assert_eq!(
        of_limits(&[("max", "1073741824")]),
        Some((Severity::Info, false, String::new())),
        "usage unknown"
    );
    assert_eq!(of_limits(&[("max", "0")]), Some((Severity::Problem, true, fix("max"))));
    assert_eq!(
        of_limits(&[("max", "2097152"), ("current", "0")]),
        Some((Severity::Warning, true, fix("max")))
    );
    assert_eq!(
        of_limits(&[("max", "2097152"), ("current", "2097152")]),
        Some((Severity::Problem, true, fix("max")))
    );
    let refused = of_limits(&[("max", "0"), ("rsvd.max", "0")]);
    assert_eq!(refused, Some((Severity::Warning, false, fix("rsvd.max"))));
}

#[test]
fn without_sys_the_default_pool_is_given_back_by_sysctl() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(dir.path().join("proc")).expect("a folder");
    let pool = "HugePages_Total: 9\nHugePages_Free: 9\nHugePages_Rsvd: 2\nHugePages_Surp: 0\n";
    fs::write(dir.path().join("proc/meminfo"), format!("{}{pool}", healthy()[0].1)).expect("a file");
    let found = findings(&Facts::gather(&Root::at(dir.path()), Scan::IfQuick), &[]);
    let idle = found.iter().find(|f| f.id == "pool-idle");
    assert_eq!(idle.map(first_command), Some("sudo sysctl -w vm.nr_hugepages=2"));
    assert!(idle.is_some_and(|f| f.evidence.iter().all(|e| e.source == Path::new("/proc/meminfo"))));
    assert!(found.iter().any(|f| f.id == "no-sys"));
}

#[test]
fn fragmented_memory_makes_programs_wait_and_bloat_comes_unasked() {
    let ids = |changes: &[(&str, &str)]| -> Vec<_> { found(changes).iter().map(|f| f.id).collect() };
    let scattered = ("proc/buddyinfo", "Node 0, zone Normal 2000000 0 0 0 0 0 0 0 0 3 0\n");
    assert_eq!(ids(&[scattered]), ["memory-fragmented", "thp-defrag-stalls"]);
    let always = "sys/kernel/mm/transparent_hugepage/enabled";
    let defrag = "sys/kernel/mm/transparent_hugepage/defrag";
    let changes = [(always, "[always] madvise never"), (defrag, "[always] madvise never")];
    assert_eq!(ids(&changes), ["khugepaged-bloat", "thp-defrag-stalls", "thp-always"]);
    // Memory in no free list may contain large blocks.
    assert_eq!(ids(&[("proc/buddyinfo", "Node 0, zone Normal 9 0 0 0 0 0 0 0 0 3 0\n")]), [""; 0]);
}

#[test]
fn a_command_can_be_pasted_whatever_the_file_is_called() {
    let actions = write("A change", 1, "a/it's; rm");
    assert_eq!(actions[0].command.as_deref(), Some(r"echo 1 | sudo tee '/a/it'\''s; rm'"));
}

/// A database host whose instance did not start on its pool: kernel 3.10, an idle pool, page tables, swap, stalls.
#[test]
fn an_idle_pool_beside_swap_and_page_tables_is_a_problem() -> Result<(), &'static str> {
    let meminfo = "MemTotal: 131000000 kB\nMemFree: 800000 kB\nMemAvailable: 2000000 kB\nSwapTotal: 16000000 kB\n\
                   SwapFree: 1000000 kB\nPageTables: 20971520 kB\nHugepagesize: 2048 kB\n";
    let found = found(&[
        ("proc/meminfo", meminfo),
        ("proc/sys/kernel/osrelease", "3.10.0-957.el7.x86_64\n"),
        ("proc/vmstat", "compact_stall 31415\n"),
        (&format!("{POOL}/nr_hugepages"), "20480"),
        (&format!("{POOL}/free_hugepages"), "20470"),
        (&format!("{POOL}/resv_hugepages"), "0"),
        (&format!("{THP}/enabled"), "[always] madvise never"),
        (&format!("{THP}/defrag"), "[always] madvise never"),
    ]);
    let of = |id: &str| found.iter().find(|one| one.id == id);
    let idle = of("pool-idle").ok_or("no idle pool")?;
    assert_eq!(idle.severity, Severity::Problem);
    assert!(idle.detail.contains("14.3GiB of other memory are swapped out"), "{}", idle.detail);
    assert!(idle.actions[0].change.starts_with("Start the program"), "{:?}", idle.actions);
    let tables = of("page-tables").ok_or("no page tables")?;
    assert!(tables.detail.contains("20GiB (16 % of the memory)"), "{}", tables.detail);
    let stalls = of("thp-defrag-stalls").ok_or("no stalls")?;
    assert!(stalls.detail.contains("31415 times since boot"), "{}", stalls.detail);
    // Words that this kernel does not know.
    let commands = found.iter().flat_map(|one| &one.actions).filter_map(|action| action.command.as_deref());
    assert!(commands.into_iter().all(|command| !command.contains("defer")), "{found:?}");
    Ok(())
}

#[test]
fn a_strict_commit_limit_and_a_tiny_segment_limit_are_found() -> Result<(), &'static str> {
    let meminfo = format!("{}CommitLimit: 8388608 kB\nCommitted_AS: 8000000 kB\n", healthy()[0].1);
    let changes = [
        ("proc/meminfo", meminfo.as_str()),
        ("proc/sys/vm/overcommit_memory", "2"),
        ("proc/sys/kernel/shmmax", "2726298"),
    ];
    let strict = found(&changes);
    let limit = strict.iter().find(|one| one.id == "commit-limit").ok_or("no limit")?;
    assert_eq!(limit.severity, Severity::Warning);
    assert!(limit.detail.contains("beyond 8GiB the kernel refuses them memory"), "{}", limit.detail);
    let shmmax = strict.iter().find(|one| one.id == "shmmax-wrong").ok_or("no shmmax")?;
    assert!(shmmax.detail.contains("2726298 bytes (2.6MiB)"), "{}", shmmax.detail);
    let lax = found(&[changes[0], ("proc/sys/vm/overcommit_memory", "0")]);
    assert!(lax.iter().all(|one| one.id != "commit-limit"));
    Ok(())
}

#[test]
fn what_sets_another_value_at_boot_is_named() {
    let unit = "[Service]\nExecStart=/bin/sh -c 'echo never > /sys/kernel/mm/transparent_hugepage/enabled'\n";
    let sets = |unit: &str| -> Vec<String> {
        let found = found(&[
            ("etc/systemd/system/no-thp.service", unit),
            ("etc/systemd/system/basic.target.wants/no-thp.service", unit),
            ("etc/sysctl.d/90-pool.conf", "vm.nr_hugepages = 512\n"),
        ]);
        found.iter().filter(|one| one.id == "set-at-boot").map(|one| one.detail.clone()).collect()
    };
    let said = sets(unit);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("/etc/systemd/system/no-thp.service sets /sys/kernel/mm"), "{said:?}");
    assert!(said[0].contains("to never") && said[0].contains("it is madvise now"), "{said:?}");
    assert_eq!(sets(&unit.replace("never", "madvise")), [""; 0]);
}
