//! A text for each hypothesis, and the same with another value of a fact, which must change the answer.

use std::io;

use hugewise_linux::{facts::Facts, hugepages::contiguity::Scan, root::Root};

use super::{Context, Explanation, Identity, explain, scan};

/// The first explanation with hypotheses, or else the first, of a text of an unknown machine, for which the readings of this one do not count.
fn first(text: &str) -> io::Result<Explanation> {
    let facts = Facts::gather(&Root::at("/nowhere"), Scan::Never);
    let machine = Identity::default();
    let context = Context { facts: &facts, machine: Some(&machine), command: &[], planned: None };
    let mut explained = explain(&scan(text.as_bytes())?, &context);
    explained.sort_by_key(|one| one.hypotheses.is_empty());
    explained.into_iter().next().ok_or_else(|| io::Error::other(format!("no message in {text}")))
}

/// A crash file with the facts that decide between the causes of SIGBUS.
fn crash(options: &str, free: u64, code: i32, mapping: &str) -> String {
    format!(
        "#  SIGBUS (0x7) at pc=0x00007f1075a9c3c3, pid=11, tid=60\nCommand Line: {options} -jar a.jar\n\
         siginfo: si_signo: 7 (SIGBUS), si_code: {code} (BUS_ADRERR), si_addr: 0x00007f1060001000\n\
         7f1060000000-7f1060200000 rw-s 00000000 00:10 {mapping}\nMemTotal: 8147612 kB\nHugePages_Total: 1024\n\
         HugePages_Free: {free}\nHugePages_Rsvd: 10\nHugepagesize: 2048 kB\n"
    )
}

/// A crash file of a JVM that could not commit 3 GB.
fn commit(available: u64, free: u64, overcommit: u8, mappings: u64) -> String {
    format!(
        "# Native memory allocation (mmap) failed to map 3126853632 bytes for committing reserved memory.\n\
         MemTotal: 8147612 kB\nMemAvailable: {available} kB\nHugePages_Total: 2663\nHugePages_Free: {free}\n\
         HugePages_Rsvd: 0\nHugepagesize: 2048 kB\n/proc/sys/vm/overcommit_memory: {overcommit}\n\
         /proc/sys/vm/max_map_count: 65530\nTotal number of mappings: {mappings}\n"
    )
}

/// A report that memory ran out.
fn out_of_memory(free: u64, constraint: &str) -> String {
    format!(
        "[1.1] w invoked oom-killer: gfp_mask=0x140cca, order=0\n\
         [1.2] Node 0 hugepages_total=6144 hugepages_free={free} hugepages_surp=0 hugepages_size=2048kB\n\
         [1.3] Node 0 Normal: 11*4kB (U) 2*8kB (U) = 60kB\n[1.3] 8388607 pages RAM\n[1.4] oom-kill:constraint=CONSTRAINT_{constraint},nodemask=(null)\n\
         [1.5] Out of memory: Killed process 30211 (batch) total-vm:5210116kB, anon-rss:4011408kB\n"
    )
}

const LIMIT: &str = "limit of the control group";
const TAKEN: &str = "programs took the pages";
const TRUNCATED: &str = "was truncated";
const HUGE: &str = "-XX:+UseLargePages";
const ANONYMOUS: &str = "77 /anon_hugepage (deleted)";
/// The causes that are left have no common action.
const OPEN: &str = "?";

/// Pairs of texts, each with the cause that is left.
fn pairs() -> Vec<[(String, &'static str); 2]> {
    let zgc =
        |before: &str| format!("{before}\n[0.003s][error][gc] Failed to commit memory (Not enough space)\n");
    let lowered = |to: u32| {
        format!("[12:01:03 INFO]: Forced to lower max Java heap size from 16384M(100%) to {to}M({to}%)\n")
    };
    let shm = |before: &str| {
        format!("{before}\nOpenJDK 64-Bit Server VM warning: Failed to reserve shared memory (errno = 1).\n")
    };
    let empty = |total: u64, free: u64, reserved: u64| {
        format!(
            "[0.000s][warning][pagesize] UseLargePages disabled, no large pages configured and available on the system.\n\
             HugePages_Total: {total}\nHugePages_Free: {free}\nHugePages_Rsvd: {reserved}\nHugepagesize: 2048 kB\n"
        )
    };
    let sandbox = |kernel: &str| format!("{}Linux version {kernel} (root)\n", empty(0, 0, 0));
    let node = |allocatable: &str| {
        format!("0/3 nodes are available: 3 Insufficient hugepages-2Mi.\n  hugepages-2Mi:  {allocatable}\n")
    };
    let postgres = |setting: &str| {
        format!(
            "FATAL:  could not map anonymous shared memory: Cannot allocate memory\nhuge_pages = {setting}\n"
        )
    };
    vec![
        [(crash(HUGE, 1024, 2, ANONYMOUS), LIMIT), (crash(HUGE, 0, 2, ANONYMOUS), TAKEN)],
        [
            (crash(HUGE, 1024, 2, ANONYMOUS), LIMIT),
            (crash(HUGE, 1024, 2, "5 /dev/shm/ring"), "/dev/shm/ring"),
        ],
        [(crash("-Xmx1g", 1024, 2, "5 /tmp/x"), TRUNCATED), (crash(HUGE, 1024, 2, ANONYMOUS), LIMIT)],
        [
            (crash("-XX:+UseLargePages -XX:-UseLargePages", 9, 2, "77"), TRUNCATED),
            (crash(HUGE, 9, 2, "77"), OPEN),
        ],
        [(crash(HUGE, 1024, 4, ANONYMOUS), "hardware"), (crash(HUGE, 1024, 2, ANONYMOUS), LIMIT)],
        [(crash(HUGE, 1024, 1, ANONYMOUS), "misaligned"), (crash(HUGE, 1024, 2, ANONYMOUS), LIMIT)],
        [
            (format!("{}hugetlb.2MB.max: max\n", crash(HUGE, 1024, 2, "77")), TRUNCATED),
            (format!("{}hugetlb.2MB.max: 0\n", crash(HUGE, 1024, 2, "77")), OPEN),
        ],
        [
            ("a.sh: line 3: 117 Bus error (core dumped) ./a\n".into(), OPEN),
            (crash(HUGE, 1024, 2, ANONYMOUS), LIMIT),
        ],
        [
            (commit(702_116, 2663, 0, 900), "but a surplus"),
            (commit(702_116, 10, 0, 900), "used up memory and swap"),
        ],
        [(commit(702_116, 2663, 0, 900), "but a surplus"), (commit(4_702_116, 10, 2, 900), "commit limit")],
        [(commit(702_116, 10, 0, 900), "used up memory"), (commit(702_116, 10, 2, 900), OPEN)],
        [
            (commit(702_116, 2663, 0, 65_529), "max_map_count permits"),
            (commit(702_116, 2663, 0, 900), "but a surplus"),
        ],
        [
            (zgc("[gc,init] Large Page Support: Enabled (Explicit)"), "pool is too small"),
            (zgc("[gc,init] Large Page Support: Disabled"), "emory on base pages"),
        ],
        [
            (zgc("Command Line: -XX:+UseZGC -XX:+UseLargePages"), "pool is too small"),
            (zgc("Command Line: -XX:+UseZGC"), "emory on base pages"),
        ],
        [(zgc(""), OPEN), (zgc("[gc,init] Large Page Support: Enabled (Explicit)"), "pool is too small")],
        [(lowered(0), "pool is too small"), (lowered(20), OPEN)],
        [
            (shm("Command Line: -XX:+UseLargePages"), "JDK 8 or 11 tries it last"),
            (shm("Command Line: -XX:+UseSHM -XX:+UseLargePages"), "started with -XX:+UseSHM"),
        ],
        [
            (shm("# JRE version: (17.0.12+7)"), "started with -XX:+UseSHM"),
            (shm("# JRE version: (11.0.22+7)"), OPEN),
        ],
        [(empty(0, 0, 0), "o pages are reserved"), (empty(100, 0, 0), "in use or reserved")],
        [(empty(100, 90, 90), "in use or reserved"), (empty(100, 90, 10), "may not use them")],
        [(sandbox("4.4.0"), "sandbox"), (sandbox("6.1.0-18-amd64"), "o pages are reserved")],
        [(out_of_memory(0, "NONE"), "the pool is not idle"), (out_of_memory(6000, "NONE"), "pool was idle")],
        [
            (out_of_memory(6000, "NONE"), "pool was idle"),
            (out_of_memory(6000, "MEMCG"), "its memory limit was exceeded"),
        ],
        [
            (out_of_memory(100, "NONE"), "the pool is not idle"),
            (out_of_memory(3000, "NONE"), "pool was idle"),
        ],
        [(node("0"), "not reserved on the nodes"), (node("2Gi"), "pods have requested")],
        [(postgres("on"), "ith huge_pages = on"), (postgres("try"), "ith huge_pages = try or off")],
        [(postgres(""), OPEN), (postgres("on"), "ith huge_pages = on")],
    ]
}

/// State of a pool of 2 MiB pages, as in `/proc/meminfo`.
fn pool(total: u64, free: u64) -> String {
    format!("HugePages_Total: {total}\nHugePages_Free: {free}\nHugePages_Rsvd: 0\nHugepagesize: 2048 kB\n")
}

/// Pairs of messages about pools and THP modes, each with the cause that is left.
fn pool_pairs() -> Vec<[(String, &'static str); 2]> {
    let short = |pool: &str| {
        format!(
            "OpenJDK 64-Bit Server VM warning: Failed to reserve and commit memory. req_addr: 0x0 bytes: 251658240 page size: \
             2097152 (errno = 12).\n{pool}"
        )
    };
    let dpdk = |facts: &str| format!("EAL: FATAL: Cannot get hugepage information.\n{facts}");
    let qemu = |why: &str, facts: &str| {
        format!("qemu-system-x86_64: unable to map backing store for guest RAM: {why}\n{facts}")
    };
    let mysql = |errno: u8, facts: &str| {
        format!("[Warning] [MY-012677] [InnoDB] Failed to allocate 138412032 bytes. errno {errno}\n{facts}")
    };
    let dotnet = |facts: &str| format!("GC heap initialization failed with error 0x8007000E\n{facts}");
    let thp = |facts: &str| {
        format!(
            "[0.000s][warning][pagesize] UseTransparentHugePages disabled, transparent huge pages are not supported by the \
             operating system.\n{facts}"
        )
    };
    let mode = |mode: &str| format!("/sys/kernel/mm/transparent_hugepage/enabled: {mode}\n");
    let no_memory = "Cannot allocate memory";
    let mount = "hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n";
    vec![
        [(short(&pool(100, 100)), "did not fit in the rest"), (short(&pool(512, 512)), "may not use them")],
        [(short(&pool(0, 0)), "o pages are reserved"), (short(&pool(100, 3)), "did not fit in the rest")],
        [
            (short("Linux version 4.4.0 (x)\n"), "sandbox"),
            (short("Linux version 6.1.0 (x)\n"), "did not fit in the rest"),
        ],
        [(dpdk(&pool(0, 0)), "o pages are reserved"), (dpdk(&pool(1024, 0)), OPEN)],
        [(dpdk(&pool(1024, 1024)), OPEN), (dpdk(&pool(0, 0)), "o pages are reserved")],
        [(dpdk(&(pool(1024, 1024) + mount)), OPEN), (dpdk(&pool(1024, 1024)), OPEN)],
        [
            (
                format!("EAL: No free hugepages reported in hugepages-1048576kB\n{}", pool(1024, 1024)),
                "DPDK takes those",
            ),
            (
                format!("EAL: No free hugepages reported in hugepages-1048576kB\n{}", pool(0, 0)),
                "else it stops",
            ),
        ],
        [
            (qemu(no_memory, &pool(0, 0)), "o pages are reserved"),
            (qemu(no_memory, &pool(512, 512)), "may not use them"),
        ],
        [(qemu(no_memory, &pool(512, 0)), "in use or reserved"), (qemu(no_memory, ""), OPEN)],
        [
            (qemu("Permission denied", &pool(0, 0)), "no right to the folder"),
            (qemu("Invalid argument", &pool(0, 0)), "not a multiple of the page size"),
        ],
        [(mysql(12, &pool(0, 0)), "o pages are reserved"), (mysql(12, &pool(512, 512)), "may not use them")],
        [(mysql(1, &pool(0, 0)), "vm.hugetlb_shm_group"), (mysql(28, &pool(0, 0)), "kernel.shmall")],
        [
            (mysql(12, &format!("Linux version 2.6.18-400.el5 (x)\n{}", pool(0, 0))), OPEN),
            (mysql(12, &format!("Linux version 6.1.0 (x)\n{}", pool(0, 0))), "o pages are reserved"),
        ],
        [
            (dotnet(&format!("DOTNET_GCLargePages=1\n{}", pool(0, 0))), "o pages are reserved"),
            (dotnet(&format!("DOTNET_GCLargePages=0\n{}", pool(0, 0))), OPEN),
        ],
        [
            (dotnet(""), OPEN),
            (dotnet(&format!("DOTNET_GCLargePages=1\n{}", pool(64, 0))), "in use or reserved"),
        ],
        [
            (thp(&mode("always madvise [never]")), "is never"),
            (thp(&mode("always [madvise] never")), "could not read"),
        ],
        [
            (thp("Linux version 4.4.0 (x)\n"), "could not read"),
            (thp("Linux version 6.1.0 (x)\n"), "is never"),
        ],
    ]
}

/// Each text has the answer of its hypothesis: one cause with an action and without a question, or several with a question
/// and without an action. The cause that is left is no longer there in the other text.
#[test]
fn facts_decide_between_the_causes() -> io::Result<()> {
    let mut failed = Vec::new();
    let pairs = [pairs(), pool_pairs()].concat();
    for pair in &pairs {
        for (text, cause) in pair {
            let one = first(text)?;
            let is_open = one.question.is_some();
            let holds = match *cause {
                OPEN => is_open && one.actions.is_empty() && one.detail.contains("(2) "),
                cause => !is_open && !one.actions.is_empty() && one.detail.contains(cause),
            };
            if !holds {
                failed
                    .push(format!("{cause}: {} {:?} {:?}\n{text}", one.detail, one.actions, one.hypotheses));
            }
        }
        let [before, after] = [first(&pair[0].0)?, first(&pair[1].0)?];
        if (&before.detail, &before.question) == (&after.detail, &after.question) {
            failed.push(format!("the same answer for both: {}", before.detail));
        }
    }
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), pairs.len() * 2, failed.join("\n"));
    Ok(())
}

/// Two crash files in one text, each with its own facts.
#[test]
fn each_report_is_explained_by_its_own_facts() -> io::Result<()> {
    let begin = "# A fatal error has been detected by the Java Runtime Environment:\n";
    let text = [begin, &crash(HUGE, 1024, 2, ANONYMOUS), begin, &crash(HUGE, 0, 2, ANONYMOUS)].concat();
    let facts = Facts::gather(&Root::at("/nowhere"), Scan::Never);
    let explained = explain(
        &scan(text.as_bytes())?,
        &Context { facts: &facts, machine: None, command: &[], planned: None },
    );
    let crashes: Vec<&str> =
        explained.iter().filter(|one| !one.hypotheses.is_empty()).map(|one| one.detail.as_str()).collect();
    assert_eq!(crashes.len(), 2, "{crashes:?}");
    assert!(crashes[0].contains(LIMIT) && crashes[1].contains(TAKEN), "{crashes:?}");
    Ok(())
}

/// A JVM that requested large pages, and prints a large region on base pages.
#[test]
fn a_region_on_base_pages_is_a_fallback_only_if_large_pages_were_requested() -> io::Result<()> {
    let log = |requested: u8, size: &str, page: &str| {
        format!(
            "[0.001s][info][pagesize] Heap:  min=8M max={size} base=0x00000000c0000000 size={size} page_size={page}\n\
             [0.001s][info][pagesize] UseLargePages={requested}, UseTransparentHugePages=0\n"
        )
    };
    for (text, harm) in [
        (log(1, "1G", "4K"), super::Harm::NotHuge),
        (log(0, "1G", "4K"), super::Harm::None),
        (log(1, "1G", "2M"), super::Harm::None),
        (log(1, "1M", "4K"), super::Harm::None),
    ] {
        assert_eq!(first(&text)?.found.message.harm, harm, "{text}");
    }
    Ok(())
}

/// Readings of a machine that is not known to be that of the text are named foreign, and decide nothing.
#[test]
fn readings_of_another_machine_are_foreign() -> io::Result<()> {
    let text = "_BOOT_ID=0123456789abcdef0123456789abcdef\n[0.000s][warning][pagesize] UseLargePages disabled, no large pages \
                configured and available on the system.\n";
    let dir = tempfile::tempdir()?;
    let meminfo = "MemTotal: 8147612 kB\nHugePages_Total: 100\nHugePages_Free: 100\nHugePages_Rsvd: 0\nHugePages_Surp: 0\n\
                   Hugepagesize: 2048 kB\n";
    std::fs::create_dir_all(dir.path().join("proc/sys/kernel/random"))?;
    std::fs::write(dir.path().join("proc/meminfo"), meminfo)?;
    for (boot, is_same) in
        [("01234567-89ab-cdef-0123-456789abcdef", true), ("f1234567-89ab-cdef-0123-456789abcdef", false)]
    {
        std::fs::write(dir.path().join("proc/sys/kernel/random/boot_id"), boot)?;
        let root = Root::at(dir.path());
        let facts = Facts::gather(&root, Scan::Never);
        let machine = Identity::read(&root);
        let context = Context { facts: &facts, machine: Some(&machine), command: &[], planned: None };
        let explained = explain(&scan(text.as_bytes())?, &context);
        let evidence = explained[0].evidence.join("\n");
        assert_eq!(evidence.contains("foreign"), !is_same, "{evidence}");
        assert_eq!(explained[0].detail.contains("may not use them"), is_same, "{}", explained[0].detail);
    }
    Ok(())
}

/// A mode that the machine has by now is not advised again.
#[test]
fn advice_is_a_difference() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let folder = dir.path().join("sys/kernel/mm/transparent_hugepage");
    std::fs::create_dir_all(&folder)?;
    let text = "# WARNING You have Transparent Huge Pages (THP) support enabled in your kernel.";
    for (mode, has_changed) in [("always [madvise] never", true), ("[always] madvise never", false)] {
        std::fs::write(folder.join("enabled"), mode)?;
        let facts = Facts::gather(&Root::at(dir.path()), Scan::Never);
        let context = Context { facts: &facts, machine: None, command: &[], planned: None };
        let explained = explain(&scan(text.as_bytes())?, &context);
        assert_eq!(explained[0].detail.contains("is madvise now"), has_changed, "{}", explained[0].detail);
    }
    Ok(())
}

/// Texts of public reports, with other values: what is said of each, and what is not.
#[test]
fn texts_of_public_reports_have_true_answers() -> io::Result<()> {
    let head = "# A fatal error has been detected by the Java Runtime Environment:\n#\n#  SIGBUS (0x7) at pc=0x00007fddde028882, \
                pid=10356, tid=0x00007fdde10c5700\n#\n# JRE version: OpenJDK Runtime Environment (8.0_212-b04) (build \
                1.8.0_212-b04)\n# Problematic frame:\n";
    let crash = |frame: &str| format!("{head}# {frame}\n");
    let quorum = "[44178.1] sh invoked oom-killer: gfp_mask=0x140dca, order=0\n[44178.9] Node 0 hugepages_total=0 \
                  hugepages_free=0 hugepages_surp=0 hugepages_size=262144kB\n[44178.9] 2095568 pages RAM\n";
    for (text, said, never) in [
        (crash("C  [libzip.so+0x11a32]  newEntry+0x62"), "a jar or zip file", "control group"),
        (crash("V  [libjvm.so+0x96874b]  PerfMemory::alloc(unsigned long)+0x7b"), "hsperfdata", "control group"),
        (crash("C  [libc.so.6+0x840fa]"), "causes are possible", "requested pages of a pool"),
        (head.replace("0x7)", "0xa)") + "# C  [libzip.dylib+0x2e92]  newEntry+0x154\n", "not of Linux", "control group"),
        (quorum.to_owned(), "no pages are in this pool", "Memory ran out"),
        (
            "EAL: Couldn't get fd on hugepage file".to_owned(),
            "could not get more memory while it runs",
            "It did not start.",
        ),
        (
            "terminate called after throwing an instance of 'std::system_error' what():  hugepage_allocator could not allocate \
             hugepages: Cannot allocate memory"
                .to_owned(),
            "not known here",
            "continues on base pages",
        ),
        (
            "{\"component\":\"virt-launcher\",\"msg\":\"internal error: qemu unexpectedly closed the monitor: qemu-kvm: unable to \
             map backing store for guest RAM: Cannot allocate memory\"}"
                .to_owned(),
            "the guest did not start",
            "-XX:",
        ),
        (
            "I detected a non zero amount of anonymous huge pages used by your process. This creates very serious latency events \
             in different conditions, especially when Redis is persisting on disk. To disable THP support use the command"
                .to_owned(),
            "another THP mode",
            "pool is too small",
        ),
        ("14:41:05 error default: Failed to open /proc/sys/vm/nr_hugepages".to_owned(), "not known here", "pool is too small"),
        ("libhugetlbfs: INFO: Found pagesize 2048 kB".to_owned(), "not known here", "could not place memory"),
        ("Log: Prefer using hugepage allocation.".to_owned(), "not known here", "pool is too small"),
    ] {
        let one = first(&text)?;
        let all = format!("{} {:?} {:?}", one.detail, one.actions, one.question);
        assert!(all.contains(said) && !all.contains(never), "{text}\n{all}");
    }
    Ok(())
}
