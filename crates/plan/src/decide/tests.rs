use std::{error::Error, fs, path::Path};

use hugewise_jvm::demand::{HeapSizes, Java, RegionDemand};
use hugewise_linux::{hugepages::contiguity::Scan, root::Root};

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

const POOL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";

/// A machine with 1000 MiB available, `ready` free blocks of 2 MiB, and a pool with total, free and reserved
/// pages.
fn machine(pool: [u64; 3], ready: u64, more: &[(&str, &str)]) -> Result<(Facts, PageSizes), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let [total, free, reserved] = pool;
    let meminfo = "MemTotal: 2097152 kB\nMemFree: 1024000 kB\nMemAvailable: 1024000 kB\nHugePages_Total: 0\n\
                   HugePages_Free: 0\nHugePages_Rsvd: 0\nHugePages_Surp: 0\nHugepagesize: 2048 kB\n";
    let write = |path: &str, text: &str| -> TestResult {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        Ok(fs::write(path, text)?)
    };
    write("proc/meminfo", meminfo)?;
    write("proc/buddyinfo", &format!("Node 0, zone Normal 0 0 0 0 0 0 0 0 0 {ready} 0\n"))?;
    for (name, value) in [
        ("nr_hugepages", total),
        ("free_hugepages", free),
        ("resv_hugepages", reserved),
        ("surplus_hugepages", 0),
        ("nr_overcommit_hugepages", 0),
    ] {
        write(&format!("{POOL}/{name}"), &format!("{value}\n"))?;
    }
    write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")?;
    write("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n")?;
    // AT_PAGESZ (6) is 4096.
    let auxv: Vec<u8> = [6u64, 4096, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    fs::create_dir_all(dir.path().join("proc/self"))?;
    fs::write(dir.path().join("proc/self/auxv"), auxv)?;
    for (path, text) in more {
        write(path, text)?;
    }
    let facts = Facts::gather(&Root::at(dir.path()), Scan::IfQuick);
    let size = two_mib()?;
    let sizes =
        PageSizes { base: "4k".parse()?, thp: Some(size), hugetlb: vec![size], default_hugetlb: Some(size) };
    Ok((facts, sizes))
}

fn two_mib() -> Result<PageSize, Box<dyn Error>> {
    Ok("2m".parse()?)
}

fn region(name: &str, page_size: &str, start: &str, most: &str) -> Result<RegionDemand, Box<dyn Error>> {
    Ok(RegionDemand {
        name: name.to_owned(),
        page_size_bytes: page_size.parse()?,
        bytes_at_start: start.parse()?,
        bytes: most.parse()?,
    })
}

fn demand() -> Result<Demand, Box<dyn Error>> {
    Ok(Demand {
        java: Java { path: "java".to_owned(), version: "25".to_owned(), collector: "ZGC".to_owned() },
        heap: HeapSizes { initial_bytes: "64m".parse()?, max_bytes: "128m".parse()? },
        regions: vec![
            region("code cache", "2m", "20m", "20m")?,
            region("heap", "2m", "64m", "127m")?,
            region("card table", "4k", "8k", "8k")?,
        ],
        direct_memory: None,
    })
}

#[test]
fn every_instance_and_what_grows_later_is_counted_and_base_pages_are_not() -> TestResult {
    let (facts, sizes) = machine([100, 90, 10], 512, &[])?;
    let off_heap = OffHeap { bytes: "5m".parse()?, page_size_bytes: two_mib()?, source: String::new() };
    let planned = pools(&demand()?.regions, Some(&off_heap), 2, None, &facts, &sizes);
    let [pool] = &planned[..] else { return Err(format!("{planned:#?}").into()) };
    assert_eq!(pool.pages_at_start, Pages(2 * (10 + 32 + 3)));
    assert_eq!(pool.pages_needed, Pages(2 * (10 + 64 + 3)));
    assert_eq!((pool.pages_in_pool, pool.pages_available), (Pages(100), Pages(80)));
    assert_eq!(pool.pages_to_add, Pages(74));
    let memory = memory(&planned, &facts).ok_or("the memory is known")?;
    assert_eq!(memory.taken_bytes, "148m".parse()?);
    assert_eq!(memory.remaining_bytes, "852m".parse()?);
    Ok(())
}

#[test]
fn availability_of_pages_has_three_answers() -> TestResult {
    for (ready, instances, expected) in [
        (512, 1, PoolAvailability::Yes),
        (20, 1, PoolAvailability::NotContiguous),
        (512, 10, PoolAvailability::NotEnoughMemory),
    ] {
        let (facts, sizes) = machine([0, 0, 0], ready, &[])?;
        let planned = pools(&demand()?.regions, None, instances, None, &facts, &sizes);
        assert_eq!(
            planned[0].obtainable, expected,
            "{ready} blocks, {instances} instances: {}",
            planned[0].why
        );
    }
    Ok(())
}

fn judged(
    got: &[RegionDemand],
    started: bool,
    facts: &Facts,
    sizes: &PageSizes,
) -> Result<Verdict, Box<dyn Error>> {
    let seen = ObservedStart {
        program: "the JVM",
        asks_explicit: true,
        asks_thp: false,
        started,
        got,
        messages: vec!["said".to_owned()],
    };
    Ok(verdict(seen, &demand()?.regions, facts, sizes))
}

#[test]
fn a_region_that_got_nothing_falls_back_by_name() -> TestResult {
    let (facts, sizes) = machine([100, 100, 0], 512, &[])?;
    let all = judged(&demand()?.regions, true, &facts, &sizes)?;
    assert_eq!(all.outcome, StartOutcome::GetsHugePages, "{}", all.summary);
    let code_only = judged(&demand()?.regions[..1], true, &facts, &sizes)?;
    assert_eq!(code_only.outcome, StartOutcome::FallsBack);
    assert!(code_only.summary.ends_with(": heap"), "{}", code_only.summary);
    let mut part = demand()?.regions;
    part[1].bytes_at_start = "10m".parse()?;
    let partly = judged(&part, true, &facts, &sizes)?;
    assert_eq!((partly.outcome, partly.regions[1].huge_bytes), (StartOutcome::FallsBack, "10m".parse()?));
    assert_eq!(judged(&[], false, &facts, &sizes)?.outcome, StartOutcome::Exits);
    Ok(())
}

#[test]
fn a_limit_on_touched_pages_kills_what_was_promised() -> TestResult {
    let group = [
        ("proc/self/cgroup", "0::/app\n"),
        ("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"),
        ("sys/fs/cgroup/app/cgroup.procs", "1\n"),
        ("sys/fs/cgroup/app/hugetlb.2MB.max", "41943040\n"),
        ("sys/fs/cgroup/app/hugetlb.2MB.current", "0\n"),
    ];
    let (facts, sizes) = machine([100, 100, 0], 512, &group)?;
    let killed = judged(&demand()?.regions, true, &facts, &sizes)?;
    assert_eq!(killed.outcome, StartOutcome::DiesOfSigbus, "{}", killed.summary);
    assert!(killed.summary.contains("more than 20 of its 74 pages"), "{}", killed.summary);
    assert_eq!(judged(&demand()?.regions[..1], true, &facts, &sizes)?.outcome, StartOutcome::FallsBack);
    Ok(())
}

/// A machine with a free pool of `pages`, and with a control group that may take `limit` bytes of it and has `used`.
fn limited(pages: u64, limit: u64, used: u64) -> Result<(Facts, PageSizes), Box<dyn Error>> {
    let (limit, used) = (format!("{limit}\n"), format!("{used}\n"));
    let group = [
        ("proc/self/cgroup", "0::/app\n"),
        ("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"),
        ("sys/fs/cgroup/app/cgroup.procs", "1\n"),
        ("sys/fs/cgroup/app/hugetlb.2MB.max", &limit),
        ("sys/fs/cgroup/app/hugetlb.2MB.current", &used),
    ];
    machine([pages, pages, 0], 512, &group)
}

#[test]
fn the_printed_actions_give_what_is_missing() -> TestResult {
    let demand = demand()?.regions;
    for (pages, limit, used) in [(0, 0, 0), (40, 20, 0), (100, 20, 3), (73, 76, 3), (74, 77, 3), (100, 74, 0)]
    {
        let (mut pages, mut limit, used) = (pages, limit << 21, used << 21);
        let change = |facts: &Facts, sizes: &PageSizes| {
            let pools = pools(&demand, None, 1, None, facts, sizes);
            actions(&pools, &[], "use less", Action::new("Start"), facts)
        };
        let (facts, sizes) = limited(pages, limit, used)?;
        let was_short = judged(&demand, true, &facts, &sizes)?.outcome == StartOutcome::DiesOfSigbus;
        let printed = change(&facts, &sizes);
        let commands: Vec<&str> = printed.iter().filter_map(|action| action.command.as_deref()).collect();
        assert_eq!(was_short, commands.iter().any(|command| command.starts_with("echo ")), "{commands:?}");
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            match words[..] {
                ["echo", bytes, "|", "sudo", "tee", "/sys/fs/cgroup/app/hugetlb.2MB.max"] => {
                    limit = bytes.parse()?
                }
                ["sudo", "hugewise", "apply", "--pool", pool] => {
                    pages += pool.trim_start_matches("2MiB=+").parse::<u64>()?;
                }
                _ => return Err(format!("an unknown command: {command}").into()),
            }
        }
        let (facts, sizes) = limited(pages, limit, used)?;
        let after = judged(&demand, true, &facts, &sizes)?;
        assert_eq!(after.outcome, StartOutcome::GetsHugePages, "{}", after.summary);
        assert_eq!(available_pools(&facts, None).get(&two_mib()?), Some(&Pages(pages.max(74))));
        assert_eq!(change(&facts, &sizes), [Action::new("Start")]);
    }
    Ok(())
}

#[test]
fn a_limit_on_reserved_pages_bounds_the_available_ones() -> TestResult {
    let group = [
        ("proc/self/cgroup", "0::/app\n"),
        ("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"),
        ("sys/fs/cgroup/app/cgroup.procs", "1\n"),
        ("sys/fs/cgroup/app/hugetlb.2MB.rsvd.max", "41943040\n"),
        ("sys/fs/cgroup/app/hugetlb.2MB.rsvd.current", "2097152\n"),
    ];
    let (facts, _) = machine([100, 100, 0], 512, &group)?;
    assert_eq!(available_pools(&facts, None).get(&two_mib()?), Some(&Pages(19)));
    let (facts, _) = machine([100, 90, 10], 512, &[])?;
    assert_eq!(available_pools(&facts, None).get(&two_mib()?), Some(&Pages(80)));
    Ok(())
}

/// A control group with 300 MiB of memory, of which 90 MiB are used by a program and 110 MiB by the page cache.
fn memory_group(left_unknown: bool) -> Vec<(&'static str, &'static str)> {
    let mut group = vec![
        ("proc/self/cgroup", "0::/app\n"),
        ("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"),
        ("sys/fs/cgroup/app/cgroup.procs", "1\n"),
        ("sys/fs/cgroup/app/memory.max", "314572800\n"),
        ("sys/fs/cgroup/app/memory.stat", "inactive_file 104857600\nactive_file 10485760\n"),
    ];
    if !left_unknown {
        group.push(("sys/fs/cgroup/app/memory.current", "209715200\n"));
    }
    group
}

#[test]
fn a_memory_limit_bounds_the_available_memory_and_kills_what_exceeds_it() -> TestResult {
    let (facts, sizes) = machine([100, 100, 0], 512, &memory_group(false))?;
    let memory = |facts: &Facts| memory(&[], facts).ok_or("the machine's memory is known");
    assert_eq!(memory(&facts)?.available_bytes.known(), Some(&"210m".parse()?));
    assert_eq!(memory(&facts)?.remaining_bytes, "1000m".parse()?);
    let judged = |heap: &str, explicit: bool, facts: &Facts| -> Result<Verdict, Box<dyn Error>> {
        let mut demand = demand()?;
        demand.regions[1].bytes = heap.parse()?;
        let got = if explicit { demand.regions.clone() } else { Vec::new() };
        let seen = ObservedStart {
            program: "the JVM",
            asks_explicit: explicit,
            asks_thp: false,
            started: true,
            got: &got,
            messages: Vec::new(),
        };
        Ok(verdict(seen, &demand.regions, facts, &sizes))
    };
    assert_eq!(judged("189m", false, &facts)?.outcome, StartOutcome::DoesNotAsk);
    let killed = judged("190m", false, &facts)?;
    assert_eq!(killed.outcome, StartOutcome::DiesOutOfMemory, "{}", killed.summary);
    assert!(killed.summary.contains("allows 210MiB more (limit 300MiB"), "{}", killed.summary);
    // Pool pages are not charged to this limit.
    assert_eq!(judged("190m", true, &facts)?.outcome, StartOutcome::GetsHugePages);
    // Without the usage, no kill is predicted, and no memory is claimed to be available.
    let (unknown, _) = machine([100, 100, 0], 512, &memory_group(true))?;
    assert_eq!(judged("190m", false, &unknown)?.outcome, StartOutcome::DoesNotAsk);
    assert!(memory(&unknown)?.available_bytes.reason().is_some_and(|why| why.contains("memory.current")));
    Ok(())
}

#[test]
fn what_is_switched_off_for_everyone_must_change_for_thp() -> TestResult {
    let never = [
        ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
        (
            "sys/kernel/mm/transparent_hugepage/shmem_enabled",
            "always within_size advise [never] deny force\n",
        ),
    ];
    let (facts, _) = machine([0, 0, 0], 512, &never)?;
    let mut demand = demand()?;
    let changed = |backing, demand: &Demand| -> Vec<String> {
        settings(backing, demand, &facts).iter().map(|setting| setting.to.clone()).collect()
    };
    assert_eq!(changed(Backing::Thp, &demand), ["madvise", "advise"]);
    assert!(changed(Backing::Hugetlb(None), &demand).is_empty());
    let command = ["java".to_owned(), "-Dname=a b".to_owned()];
    let options = ["-XX:+UseTransparentHugePages".to_owned()];
    let start = start_of_java(&command, &options, Backing::Thp);
    let commands: Vec<_> = actions(&[], &settings(Backing::Thp, &demand, &facts), "", start, &facts)
        .into_iter()
        .filter_map(|action| action.command)
        .collect();
    assert_eq!(
        commands,
        [
            "sudo hugewise apply --thp-enabled madvise --shmem-enabled advise",
            "hugewise run --backing thp -- java '-Dname=a b'"
        ]
    );
    demand.java.collector = "G1".to_owned();
    assert_eq!(changed(Backing::Thp, &demand), ["madvise"]);
    Ok(())
}

#[test]
fn a_segment_must_be_allowed_by_size_and_by_group() -> TestResult {
    let limits = |group: &str| -> Result<Vec<Setting>, Box<dyn Error>> {
        let status = "Uid:\t7 7 7 7\nGid:\t5 5 5 5\nGroups:\t5 6\nCapEff:\t0000000000000000\n";
        let more = [
            ("proc/sys/kernel/shmmax", "1048576\n"),
            ("proc/sys/kernel/shmall", "100000000\n"),
            ("proc/sys/vm/hugetlb_shm_group", group),
            ("proc/self/status", status),
        ];
        let (facts, _) = machine([0, 0, 0], 512, &more)?;
        Ok(settings(Backing::Shm(None), &demand()?, &facts).iter().map(|setting| setting.setting).collect())
    };
    assert_eq!(limits("0\n")?, [Setting::ShmMax, Setting::ShmGroup]);
    assert_eq!(limits("6\n")?, [Setting::ShmMax]);
    Ok(())
}
