use std::{collections::BTreeMap, fs, io, path::Path};

use hugewise_linux::{action::Action, facts::Facts, hugepages::contiguity::Scan, root::Root};
use proptest::prelude::*;

use super::{Family::*, *};
use crate::testing::dresses;

/// Number of lines of each family in a file of `tests/messages`.
fn families(file: &str) -> io::Result<BTreeMap<Family, u64>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages").join(file);
    let scanned = scan(&fs::read(path)?[..])?;
    assert_eq!(scanned.left_out, 0);
    let mut families = BTreeMap::new();
    for found in scanned.found.into_iter().filter(|found| found.message.family != Information) {
        *families.entry(found.message.family).or_default() += found.count;
    }
    Ok(families)
}

/// The files contain the output of these JVMs with an empty pool, with a pool of 100 pages, and with THP off.
#[test]
fn what_jvms_and_kernels_printed_is_found() -> io::Result<()> {
    let both = |common: &[(Family, u64)], own: &[(Family, u64)]| common.iter().chain(own).copied().collect();
    let modern =
        [(PoolEmpty, 1), (SharedMemory, 1), (KindNotConfigured, 2), (ThpOff, 2), (PageSizeRefused, 1)];
    let zgc = [(HeapCommit, 11), (HeapLowered, 2), (UnknownFlag, 1), (LargePagesOn, 2)];
    let modern: Vec<_> = modern.into_iter().chain(zgc).collect();
    let kernel = [(BootPool, 3), (BootParameter, 3), (NoBlock, 1), (OutOfMemory, 1), (MemlockRule, 1)];
    let others = [(SharedMemory, 1), (BusError, 2), (NoNode, 1), (ContainerLimit, 1)];
    let eleven = [(PoolShort, 10), (SharedMemory, 8), (KindNotConfigured, 1), (PageSizeIgnored, 2)];
    let newest = [
        [(PoolEmpty, 1), (PoolShort, 13), (ThpOff, 4), (ShmemThpOff, 2), (PageSizeRefused, 2)],
        [(HeapCommit, 12), (HeapLowered, 1), (UnknownFlag, 3), (LargePagesOff, 1), (LargePagesOn, 1)],
    ];
    for (file, expected) in [
        ("jdk11.txt", both(&eleven, &[])),
        ("jdk17.txt", both(&modern, &[(PoolShort, 13)])),
        ("jdk21.txt", both(&modern, &[(PoolShort, 14)])),
        ("jdk25.txt", both(&newest.concat(), &[(RegionPages, 7), (ProgramSetting, 1)])),
        ("jdk26-constructed.txt", both(&[(PoolEmpty, 1), (RegionPages, 3)], &[])),
        ("kernel.txt", both(&kernel, &others)),
    ] {
        assert_eq!(families(file)?, expected, "{file}");
    }
    Ok(())
}

#[test]
fn fields_are_read() {
    let mib = |mib: u64| Some(Bytes(mib << 20));
    let message = |line| read(line).expect(line);
    let short = message(
        "OpenJDK 64-Bit Server VM warning: Failed to reserve and commit memory. req_addr: 0x00000000c0000000 \
         bytes: 1073741824 page size: 2097152 (errno = 12).",
    );
    assert_eq!(
        (short.bytes, short.page_size.map(PageSize::bytes), short.errno),
        (mib(1024), mib(2), Some(12))
    );
    let lowered = message("[error][gc] Forced to lower max Java heap size from 1024M(100%) to 200M(20%)");
    assert_eq!((lowered.bytes, lowered.harm), (mib(824), Harm::Stopped));
    let boot = message("HugeTLB: allocating 64 of page size 1.00 GiB failed.  Only allocated 21 hugepages.");
    assert_eq!((boot.pages, boot.got, boot.page_size.map(PageSize::bytes)), (Some(64), Some(21), mib(1024)));
    let order = message("java: page allocation failure: order:9, mode:0x1400ca(GFP_TRANSHUGE)");
    assert_eq!((order.order, order.harm), (Some(9), Harm::NotHuge));
    assert_eq!(message("Unrecognized VM option '+UseHugeTLBFS'").name.as_deref(), Some("UseHugeTLBFS"));
    for other in [
        "Unrecognized VM option 'UseFastMode'",
        "swapper: page allocation failure: order:0",
        "[gc,start] GC(1) Pause Young",
    ] {
        assert_eq!(read(other), None, "{other}");
    }
}

#[test]
fn equal_messages_are_one_and_damaged_logs_are_read() -> io::Result<()> {
    let line = |at: u32| {
        format!("Failed to reserve and commit memory using large pages. req_addr: 0x{at:x} bytes: 4194304\n")
    };
    let mut log = b"\xff\xfe\0 binary\n".to_vec();
    log.extend(vec![b'x'; 100_000]);
    log.push(b'\n');
    log.extend((0..3).map(line).collect::<String>().into_bytes());
    log.extend(b"Failed to commit memory (Not enough space)");
    let scanned = scan(&log[..])?;
    let seen: Vec<_> = scanned.found.iter().map(|f| (f.message.family, f.line, f.count)).collect();
    assert_eq!((seen, scanned.lines), (vec![(PoolShort, 3, 3), (HeapCommit, 6, 1)], 6));

    let many: String = (0..2000).map(|n| line(0).replace("4194304", &n.to_string())).collect();
    let scanned = scan(many.as_bytes())?;
    assert_eq!((scanned.found.len(), scanned.left_out), (1000, 1000));
    Ok(())
}

fn machine(files: &[(&str, &str)]) -> io::Result<Facts> {
    let dir = tempfile::tempdir()?;
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(dir.path()))?;
        fs::write(path, text)?;
    }
    Ok(Facts::gather(&Root::at(dir.path()), Scan::IfQuick))
}

fn explained(text: &str, facts: &Facts) -> io::Result<Vec<Explanation>> {
    Ok(explain(&scan(text.as_bytes())?, &named(facts)))
}

/// The facts of a machine that the text is of.
fn named(facts: &Facts) -> Context<'_> {
    Context { facts, machine: None, command: &[], planned: None }
}

#[test]
fn evidence_and_fix_come_from_this_machine() -> io::Result<()> {
    let meminfo = "MemTotal: 16777216 kB\nHugePages_Total: 100\nHugePages_Free: 90\nHugePages_Rsvd: 10\n\
                   HugePages_Surp: 0\nHugepagesize: 2048 kB\n";
    let thp = "sys/kernel/mm/transparent_hugepage";
    let facts = machine(&[
        ("proc/meminfo", meminfo),
        (&format!("{thp}/enabled"), "always madvise [never]\n"),
        (&format!("{thp}/shmem_enabled"), "always within_size advise [never] deny force\n"),
    ])?;
    // 120 pages of code cache and 512 of heap, beside 20 pages in use; the log does not contain the page
    // size.
    let log = "Failed to reserve and commit memory using large pages. req_addr: 0x0 bytes: 251658240\n\
               Failed to reserve and commit memory using large pages. req_addr: 0xc0000000 bytes: 1073741824\n\
               UseTransparentHugePages disabled, transparent huge pages are not supported by the operating system.\n\
               Shared memory transparent huge pages are not enabled in the OS.\n";
    let explained_log = explained(log, &facts)?;
    // No figure for the pool: the log lacks a part of the demand.
    let action = &explained_log[1].actions[0];
    assert_eq!(action.command.as_deref(), Some("sudo hugewise apply -- COMMAND"));
    assert!(action.change.contains("take 632 pages of 2MiB"), "{action:?}");
    let planned = [Action::new("Grow the pools").by("sudo hugewise apply --pool 2MiB=+1")];
    let command = ["java".to_owned()];
    let context = Context { command: &command, planned: Some(&planned), ..named(&facts) };
    let with_plan = explain(&scan(log.as_bytes())?, &context);
    let of_plan: Vec<bool> = with_plan.iter().map(|one| one.actions == planned).collect();
    assert_eq!(of_plan, [true, true, false, false], "only the messages about the pool");
    let evidence = |at: usize| explained_log[at].evidence.join("\n");
    assert!(evidence(0).contains("has 100 now, 80 of them available"), "{}", evidence(0));
    assert!(evidence(2).contains("set to never now [/sys/kernel/mm/transparent_hugepage/enabled]"));
    assert!(evidence(3).contains("never now [/sys/kernel/mm/transparent_hugepage/shmem_enabled]"));

    let unknown = explained(log, &machine(&[])?)?;
    assert!(unknown[0].evidence[0].contains("size is unknown"), "{unknown:?}");
    assert!(unknown[2].evidence[0].contains("THP is unknown"), "{unknown:?}");
    Ok(())
}

/// Every family has a cause and an action, also if the message lacks fields.
#[test]
fn nothing_is_left_unexplained() -> io::Result<()> {
    let facts = machine(&[])?;
    let mut kinds = 0;
    for file in ["jdk11.txt", "jdk17.txt", "jdk25.txt", "kernel.txt"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages").join(file);
        let explained = explained(&fs::read_to_string(path)?, &facts)?;
        for one in explained.into_iter().filter(|one| one.found.message.family != Information) {
            let next = one.actions.first().or(one.question.as_ref()).map(|action| action.change.as_str());
            let reported = format!("{} {}", one.detail, next.unwrap_or_default());
            assert!(
                one.detail.len() > 20 && next.is_some_and(|next| next.len() > 10) && !reported.contains("  "),
                "{one:?}"
            );
            kinds += 1;
        }
    }
    assert!(kinds > 30, "{kinds}");
    Ok(())
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        log in prop::collection::vec(any::<u8>(), 0..400),
        wording in 0..wordings::all().count(),
        numbers in prop::collection::vec("[0-9]{0,25}", 6),
    ) {
        // A line of each wording, its fields filled with arbitrary numbers.
        let mut line = wordings::all().nth(wording).map_or("", |wording| wording.pattern).replace("\\", "");
        for (group, number) in ["bytes", "errno", "page", "order", "pages", "got"].iter().zip(&numbers) {
            for pattern in ["d+", "d+[BKMG]", "d+[BKMG]?", "d+M", "[1-9]d*", "d+kB"] {
                line = line.replace(&format!("(?<{group}>{pattern})"), number);
            }
        }
        let mut text = log.clone();
        text.extend(b"\n");
        text.extend(line.as_bytes());
        text.extend(format!("\nForced to lower max Java heap size from {}M(100%) to {}M\n", numbers[0], numbers[1]).bytes());
        text.extend(format!("page allocation failure: order:{}\n", numbers[2]).bytes());
        let scanned = scan(&text[..]);
        let facts = machine(&[("proc/meminfo", "Hugepagesize: 2048 kB\n")]);
        if let (Ok(scanned), Ok(facts)) = (scanned, facts) {
            let _ = explain(&scanned, &named(&facts));
        }
    }
}

#[test]
fn every_pattern_compiles() {
    assert!(PATTERNS.is_some());
}

/// A wording is found by its own sample: no earlier one hides it.
#[test]
fn every_sample_is_of_its_wording() {
    for (at, wording) in wordings::all().enumerate() {
        let message = read(wording.sample).expect(wording.sample);
        assert_eq!(message.wording, Some(at), "{}: {message:?}", wording.sample);
    }
}

/// The lines of a file of `tests/messages` by program: `# PROGRAM` is a heading.
fn by_program(file: &str) -> io::Result<BTreeMap<String, Vec<String>>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages").join(file))?;
    let mut programs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut program = String::new();
    for line in text.lines() {
        match line.strip_prefix("# ") {
            Some(name) => program = name.to_owned(),
            None => programs.entry(program.clone()).or_default().push(line.to_owned()),
        }
    }
    Ok(programs)
}

/// No message of any program is passed over, as it is and without the first words, which differ between versions.
#[test]
fn silence_is_no_all_clear() -> io::Result<()> {
    let programs = by_program("programs.txt")?;
    assert!(programs.len() >= 30, "{} programs", programs.len());
    for (program, lines) in programs {
        for line in lines {
            let message = read(&line);
            assert!(message.is_some_and(|message| message.harm != Harm::None), "{program}: {line}");
        }
    }
    Ok(())
}

/// Lines that people pasted in public, with other values: the program and the effect that each has. The headings are
/// `# PROGRAM | EFFECT | ADDRESS`.
fn found() -> io::Result<Vec<(String, String, String)>> {
    let mut lines = Vec::new();
    for (heading, texts) in by_program("found.txt")? {
        let mut words = heading.split(" | ").map(str::to_owned);
        let (program, effect) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        lines.extend(texts.into_iter().map(|text| (program.clone(), effect.clone(), text)));
    }
    Ok(lines)
}

fn effect(message: &Message) -> String {
    serde_json::to_string(&message.harm).unwrap_or_default().replace('"', "")
}

#[test]
fn messages_found_in_public_have_their_program_and_effect() -> io::Result<()> {
    let found = found()?;
    assert!(found.len() >= 60, "{} lines", found.len());
    for (program, harm, text) in found {
        let message = read(&text).expect(&text);
        assert_eq!((message.speaker, effect(&message)), (&*program, harm), "{text}");
    }
    Ok(())
}

/// A message in any wrapping is the same message: same program, effect and fields.
#[test]
fn a_message_in_any_dress_is_the_same() -> io::Result<()> {
    let mut failed = Vec::new();
    let mut pairs = 0;
    let full = std::env::var_os("HUGEWISE_FULL").is_some();
    for (_, _, text) in found()? {
        // Lines around it, as a log has them.
        let log = format!("12:00:01 starting\n{text}\n12:00:02 done\n");
        let of = |log: &[u8]| -> Vec<(Option<usize>, String)> {
            let scanned = crate::decoder::open(log).and_then(scan).unwrap_or_default();
            let message = |one: FoundMessage| {
                let mut message = one.message;
                message.name = None;
                (message.wording, format!("{message:?} {}", one.count))
            };
            scanned.found.into_iter().map(message).collect()
        };
        let plain = of(log.as_bytes());
        assert_eq!(plain.len(), 1, "{text}");
        for (name, dress) in dresses::DRESSES.iter().chain(dresses::QUOTES) {
            pairs += 1;
            // A full run checks all pairs.
            if !full && pairs % 16 != 0 {
                continue;
            }
            let dressed = of(&dress(log.as_bytes()));
            if dressed != plain {
                failed.push(format!("{name}: {text}\n   {plain:?}\n   {dressed:?}"));
            }
        }
    }
    assert!(failed.is_empty(), "{} of {pairs}:\n{}", failed.len(), failed.join("\n"));
    Ok(())
}

#[test]
fn healthy_machines_have_no_message() -> io::Result<()> {
    let machines = by_program("healthy.txt")?;
    assert!(machines.len() >= 5, "{} machines", machines.len());
    for (machine, lines) in machines {
        let scanned = scan(lines.join("\n").as_bytes())?;
        assert!(scanned.about_huge_pages > 0, "{machine}");
        for found in scanned.found {
            assert_eq!(found.message.family, Information, "{machine}: {}", found.text);
        }
    }
    Ok(())
}

/// Environment variable that makes the test write the page before it compares it.
const WRITE_VARIABLE: &str = "HUGEWISE_WRITE_MESSAGES";

/// The page of all messages, by program.
fn page() -> io::Result<String> {
    let facts = machine(&[("proc/meminfo", "Hugepagesize: 2048 kB\n")])?;
    let mut text = "# Known messages\n\nAll messages that [`hugewise explain`](explain.md) knows, by the program that prints them: \
                    the message, its effect on the program, its meaning, and what to do. Other lines about huge pages are shown as \
                    *about huge pages, but unknown here*.\n\nA test compares this page with the code.\n"
        .to_owned();
    let mut speakers: Vec<&str> = Vec::new();
    for wording in wordings::all().filter(|wording| !speakers.contains(&wording.speaker)).collect::<Vec<_>>()
    {
        if speakers.contains(&wording.speaker) {
            continue;
        }
        speakers.push(wording.speaker);
        text += &format!("\n## {}\n", wording.speaker);
        for one in wordings::all().filter(|one| one.speaker == wording.speaker) {
            let explained = explained(one.sample, &facts)?;
            let Some(explanation) = explained.first() else { continue };
            let effect = match one.harm {
                Harm::Stopped => "Failed",
                Harm::NotHuge => "No huge pages",
                Harm::Warned => "Warning",
                Harm::Unknown => "Unknown",
                Harm::None => "Note",
            };
            text += &format!("\n```text\n{}\n```\n\n*{effect}.* {}\n", one.sample, explanation.detail);
            if let Some(question) = &explanation.question {
                let command =
                    question.command.as_ref().map(|command| format!(": `{command}`")).unwrap_or_default();
                text += &format!("\nTo decide: {}{command}.\n", question.change);
            }
            for action in &explanation.actions {
                let command =
                    action.command.as_ref().map(|command| format!(": `{command}`")).unwrap_or_default();
                text += &format!("\nTo do: {}{command}.\n", action.change);
            }
        }
    }
    Ok(text)
}

#[test]
fn the_page_has_all_messages() -> io::Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/messages.md");
    let now = page()?;
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        fs::write(&file, &now)?;
    }
    let published = fs::read_to_string(&file)?;
    assert!(published == now, "{} is stale: {WRITE_VARIABLE}=1 cargo test writes it anew", file.display());
    Ok(())
}

/// No message is said to be of a program that did not print it.
#[test]
fn messages_of_strangers_are_of_no_known_program() {
    for line in [
        "[24213]{-1}[-1/-1] e Memory  mmPoolAllocator.cpp: reserve with transparent huge pages failed",
        "ADM1821W  Db2 could not allocate large pages for the database memory set; falling back to regular pages",
        "the compiler was built without support for huge pages",
        "engine: 512 hugepages on NUMA node 1 in use",
        "scheduler: not enough hugepages for job 12",
        "coredump_filter: hugetlb pages are part of the dump",
        "mimalloc: reserved 1 of 1 huge pages of 1GiB",
        "<jemalloc>: huge pages enabled by opt.thp",
        "containerd: hugepages-2Mi pre-allocated: 512",
        "cache could not use large pages",
    ] {
        let speaker = read(line).map(|message| message.speaker);
        assert_eq!(speaker, Some("a program that is not known here"), "{line}");
    }
}
