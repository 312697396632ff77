use std::{cell::OnceCell, path::PathBuf};

use hugewise_jvm::environment::Environment;
use hugewise_linux::{
    pages::count::PageCounts, proc::process::Process, reading::Reading, root::Root, units::PageSize,
};

use super::{
    super::{
        Kind, Known, Part, PartCounts, Survey,
        reason_words::{Circumstances, words},
        runtime::Runtime,
    },
    *,
};

const MIB: u64 = 1 << 20;

fn machine(enabled: &str) -> MachineState {
    let root = Root::at("/nonexistent");
    let thp = hugewise_linux::hugepages::thp::read(&root);
    let decided = |word: &str| Some((word.to_owned(), PathBuf::from("sys/kernel/mm/enabled")));
    MachineState {
        sizes: hugewise_linux::hugepages::page_sizes::PageSizes {
            base: size("4k"),
            thp: Some(size("2m")),
            hugetlb: Vec::new(),
            default_hugetlb: None,
        },
        kernel: Some((6, 18)),
        anonymous: decided(enabled),
        shared: decided("never"),
        defrag: Some("madvise".to_owned()),
        khugepaged: thp.khugepaged,
        fault_fallbacks: Some(3),
        splits: Some(1),
        pools: Vec::new(),
    }
}

fn size(text: &str) -> PageSize {
    text.parse().unwrap_or_else(|_| unreachable!())
}

/// 64 MiB of anonymous memory, wholly resident on base pages, and not advised.
fn seen() -> MappingReadings {
    MappingReadings {
        addresses: 64 * MIB..128 * MIB,
        offset: 0,
        memory: Memory::Anonymous,
        tmpfs: None,
        is_stack: false,
        advice: ThpAdvice::None,
        eligible: Some(true),
        small: Bytes(64 * MIB),
        thp: Bytes::ZERO,
        edges: Some(Bytes::ZERO),
        sparse: Bytes::ZERO,
        split: Bytes::ZERO,
        swap: Bytes::ZERO,
        process_off: false,
        wants_pool: false,
    }
}

fn advised() -> MappingReadings {
    MappingReadings { advice: ThpAdvice::Huge, ..seen() }
}

fn why(seen: &MappingReadings, enabled: &str) -> Option<Reason> {
    most(seen, &machine(enabled)).map(|judged| judged.reason)
}

/// The reason for most of the bytes.
fn most(seen: &MappingReadings, machine: &MachineState) -> Option<ReasonWithCauses> {
    let judged = judge(seen, machine);
    let all: Bytes = judged.iter().map(|(_, bytes)| *bytes).sum();
    assert!(judged.is_empty() || all == seen.small + seen.swap, "{judged:?}");
    judged.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(judged, _)| judged)
}

/// The reasons in their order, with MiB.
fn account(seen: &MappingReadings, machine: &MachineState) -> Vec<(Reason, u64)> {
    judge(seen, machine).into_iter().map(|(judged, bytes)| (judged.reason, bytes.0 / MIB)).collect()
}

/// A reason as text, for a process without variables or runtime.
fn says(
    judged: ReasonWithCauses,
    kind: Kind,
    counts: &PartCounts,
    machine: &MachineState,
    environ: &str,
    runtime: Option<Runtime>,
) -> (String, String) {
    let root = Root::at("/nonexistent");
    let process = Process {
        pid: 7,
        pid_inside: None,
        name: "a".to_owned(),
        command: Vec::new(),
        uid: Reading::Known(0),
        thp_enabled: Reading::Known(true),
        started: None,
    };
    let environment = Environment::parse(environ.as_bytes());
    let known = Known {
        root: &root,
        machine,
        process: &process,
        environment: &environment,
        runtime: runtime.as_ref(),
    };
    let words =
        words(judged, kind, counts, &Circumstances { known, is_jvm: false, has_file_thp: OnceCell::new() });
    let actions = words
        .actions
        .iter()
        .map(|action| format!("{} {}; ", action.change, action.command.clone().unwrap_or_default()));
    (words.detail, actions.collect())
}

#[test]
fn what_is_huge_or_absent_needs_no_reason() {
    assert_eq!(why(&MappingReadings { small: Bytes::ZERO, thp: Bytes(64 * MIB), ..seen() }, "madvise"), None);
    assert_eq!(why(&MappingReadings { memory: Memory::Pool, ..seen() }, "madvise"), None);
}

#[test]
fn settings_and_advice_decide_together() {
    for (advice, enabled, expected) in [
        (ThpAdvice::None, "madvise", Reason::NeverAdvised),
        (ThpAdvice::Huge, "madvise", Reason::Eligible),
        (ThpAdvice::NoHuge, "madvise", Reason::OffHere),
        (ThpAdvice::None, "always", Reason::Eligible),
        (ThpAdvice::NoHuge, "always", Reason::OffHere),
        (ThpAdvice::None, "never", Reason::OffGlobally),
        (ThpAdvice::Huge, "never", Reason::OffGlobally),
    ] {
        assert_eq!(
            why(&MappingReadings { advice, ..seen() }, enabled),
            Some(expected),
            "{advice:?} under {enabled}"
        );
    }
}

#[test]
fn shared_memory_has_a_setting_of_its_own() {
    let shared = MappingReadings { memory: Memory::Shared, ..advised() };
    assert_eq!(why(&shared, "always"), Some(Reason::OffGlobally));
    let mut machine = machine("never");
    machine.shared = Some(("advise".to_owned(), PathBuf::from("shmem_enabled")));
    let reason = |seen: &MappingReadings| most(seen, &machine).map(|judged| judged.reason);
    assert_eq!(reason(&shared), Some(Reason::Eligible));
    assert_eq!(
        reason(&MappingReadings { advice: ThpAdvice::None, ..shared.clone() }),
        Some(Reason::NeverAdvised)
    );
    // Without an equally aligned file offset, an address cannot be mapped by a huge page.
    assert_eq!(reason(&MappingReadings { offset: 4096, ..shared }), Some(Reason::NotAligned));
}

#[test]
fn geometry_comes_first() {
    let small = MappingReadings { addresses: 64 * MIB..65 * MIB, small: Bytes(MIB), ..seen() };
    assert_eq!(why(&small, "never"), Some(Reason::TooSmall));
    let crooked = MappingReadings { addresses: 65 * MIB..67 * MIB, small: Bytes(2 * MIB), ..seen() };
    assert_eq!(why(&crooked, "madvise"), Some(Reason::NotAligned));
    // A part of a mapping lies before its first aligned huge page.
    let edges = MappingReadings { edges: Some(Bytes(MIB)), ..seen() };
    assert_eq!(account(&edges, &machine("madvise")), [(Reason::NotAligned, 1), (Reason::NeverAdvised, 63)]);
    // All three aligned ranges are huge; the base pages lie before and after them.
    let edges = MappingReadings {
        addresses: 63 * MIB..71 * MIB,
        thp: Bytes(6 * MIB),
        small: Bytes(2 * MIB),
        ..advised()
    };
    assert_eq!(why(&edges, "madvise"), Some(Reason::NotAligned));
    let one_missing = MappingReadings { thp: Bytes(4 * MIB), ..edges };
    assert_eq!(why(&one_missing, "madvise"), Some(Reason::Eligible));
}

#[test]
fn what_the_process_gave_up_is_said_before_the_settings() {
    assert_eq!(why(&MappingReadings { process_off: true, ..seen() }, "madvise"), Some(Reason::OffByPrctl));
    assert_eq!(
        why(&MappingReadings { wants_pool: true, ..seen() }, "madvise"),
        Some(Reason::PoolShortAtStart)
    );
}

#[test]
fn evidence_of_one_mapping_goes_before_guesses() {
    let split = MappingReadings { split: Bytes(40 * MIB), ..advised() };
    assert_eq!(account(&split, &machine("madvise")), [(Reason::SplitSince, 40), (Reason::Eligible, 24)]);
    let swapped = MappingReadings { swap: Bytes(8 * MIB), ..advised() };
    assert_eq!(account(&swapped, &machine("madvise")), [(Reason::Swapped, 8), (Reason::Eligible, 64)]);
    assert_eq!(
        why(&MappingReadings { eligible: Some(false), ..advised() }, "madvise"),
        Some(Reason::NotEligible)
    );
    assert_eq!(why(&MappingReadings { eligible: None, ..advised() }, "madvise"), Some(Reason::Eligible));
}

#[test]
fn the_pool_is_named_before_the_place_of_shared_memory() -> Result<(), &'static str> {
    let shared = MappingReadings { memory: Memory::Shared, offset: 0x1000, ..seen() };
    assert_eq!(why(&shared, "madvise"), Some(Reason::NotAligned));
    let wanted = MappingReadings { wants_pool: true, ..shared };
    let machine = machine("madvise");
    let judged = most(&wanted, &machine).ok_or("no reason")?;
    assert_eq!(judged.reason, Reason::PoolShortAtStart);
    let mut counts = PartCounts::default();
    counts.memory = Memory::Shared;
    let said = says(judged, Kind::Database, &counts, &machine, "", None).0;
    assert!(
        said.contains("PostgreSQL requests") && said.contains("/sys/kernel/mm/enabled is never"),
        "{said}"
    );
    Ok(())
}

#[test]
fn files_and_the_kernel_are_not_judged_by_settings() {
    assert_eq!(why(&MappingReadings { memory: Memory::File, ..seen() }, "never"), Some(Reason::File));
    assert_eq!(why(&MappingReadings { memory: Memory::Kernel, ..seen() }, "never"), Some(Reason::Kernel));
}

#[test]
fn candidates_are_those_that_the_counters_allow() -> Result<(), &'static str> {
    let mut machine = machine("madvise");
    let judged = most(&advised(), &machine).ok_or("no reason")?;
    let all = [Reason::AdvisedAfterTouch, Reason::FragmentationThen, Reason::SplitSince];
    assert_eq!(judged.candidates(), all);
    let said = says(judged, Kind::Anonymous, &PartCounts::default(), &machine, "", None).0;
    assert!(
        said.contains("thp_fault_fallback is 3, since boot and of all processes")
            && said.contains("possible causes"),
        "{said}"
    );
    // No allocation failed, and no huge page was split: one cause remains.
    (machine.fault_fallbacks, machine.splits) = (Some(0), Some(0));
    let judged = most(&advised(), &machine).ok_or("no reason")?;
    assert_eq!((judged.reason, judged.candidates().len()), (Reason::AdvisedAfterTouch, 0));
    // Without a counter its cause cannot be excluded.
    (machine.fault_fallbacks, machine.splits) = (None, Some(0));
    let judged = most(&advised(), &machine).ok_or("no reason")?;
    assert_eq!(judged.candidates(), [Reason::AdvisedAfterTouch, Reason::FragmentationThen]);
    Ok(())
}

#[test]
fn settings_that_were_not_read_are_not_made_up() {
    let mut unknown = machine("always");
    unknown.anonymous = None;
    assert_eq!(most(&seen(), &unknown).map(|judged| judged.reason), Some(Reason::Unknown));
    unknown.sizes.thp = None;
    assert_eq!(most(&seen(), &unknown).map(|judged| judged.reason), Some(Reason::OffGlobally));
}

/// Of a region that is huge but for its ends, the reason holds for the ends; and one of two reasons holds for less
/// than all base pages.
#[test]
fn a_reason_holds_for_the_bytes_it_was_found_for() {
    let machine = machine("madvise");
    let part = |at: u64, pages: PageCounts, reasons: &[(Reason, u64)]| {
        let judged = |reason| ReasonWithCauses { reason, fragmentation: false, split: false };
        let mut counts = PartCounts::default();
        counts.pages = pages;
        counts.reasons = reasons.iter().map(|(reason, kib)| (judged(*reason), Bytes(kib << 10))).collect();
        let addresses = at * MIB..(at + 64) * MIB;
        (Part { addresses, name: "malloc".to_owned(), kind: Kind::Malloc, of_jvm: None }, counts)
    };
    let base = |kib: u64| PageCounts { base: Bytes(kib << 10), ..PageCounts::default() };
    let huge = PageCounts { thp: Bytes(22 * MIB), ..base(132) };
    let survey = Survey {
        parts: vec![
            part(64, huge, &[(Reason::TooSmall, 132)]),
            part(128, base(400), &[(Reason::TooSmall, 100), (Reason::NeverAdvised, 300)]),
        ],
        source: String::new(),
        notes: Vec::new(),
        environment: Environment::default(),
        runtime: None,
    };
    let of = |at: u64| {
        let pages = survey.region("malloc", &machine, |part| part.addresses.start >= at * MIB)?;
        let huge = pages.bytes_by_page_size.iter().filter(|(size, _)| **size > machine.sizes.base);
        let huge: Bytes = huge.map(|(_, bytes)| *bytes).sum();
        let [reason, resident, huge] =
            [pages.reason_bytes?, pages.resident_bytes, huge].map(|bytes| bytes.0 >> 10);
        Some((pages.reason?, reason, resident, huge))
    };
    assert_eq!(of(64), Some((Reason::NeverAdvised, 300, (22 << 10) + 532, 22 << 10)));
    assert_eq!(of(128), Some((Reason::NeverAdvised, 300, 400, 0)));
}

#[test]
fn the_mount_decides_for_files_on_tmpfs() {
    let on = |huge, advice| MappingReadings { memory: Memory::Shared, tmpfs: Some(huge), advice, ..seen() };
    for (huge, advice, expected) in [
        (Huge::Never, ThpAdvice::Huge, Reason::OffByMount),
        (Huge::Advise, ThpAdvice::None, Reason::NeverAdvised),
        (Huge::Advise, ThpAdvice::Huge, Reason::Eligible),
        (Huge::WithinSize, ThpAdvice::None, Reason::Eligible),
        (Huge::Always, ThpAdvice::None, Reason::Eligible),
    ] {
        for shmem_enabled in ["never", "always", "deny", "force"] {
            let mut machine = machine("madvise");
            machine.shared = Some((shmem_enabled.to_owned(), PathBuf::from("shmem_enabled")));
            let expected = match shmem_enabled {
                "deny" => Reason::OffGlobally,
                "force" => Reason::Eligible,
                _ => expected,
            };
            let reason = most(&on(huge, advice), &machine).map(|judged| judged.reason);
            assert_eq!(reason, Some(expected), "{huge} {advice:?} {shmem_enabled}");
        }
    }
}

#[test]
fn the_kernel_excludes_stacks_and_only_stacks() {
    let stack = MappingReadings { is_stack: true, advice: ThpAdvice::NoHuge, ..seen() };
    assert_eq!(why(&stack, "always"), Some(Reason::ThreadStack));
    assert_eq!(why(&MappingReadings { is_stack: false, ..stack.clone() }, "always"), Some(Reason::OffHere));
    let mut old = machine("always");
    old.kernel = Some((6, 6));
    assert_eq!(most(&stack, &old).map(|judged| judged.reason), Some(Reason::OffHere));
}

#[test]
fn advised_memory_only_is_recognised_by_what_is_not_eligible() {
    let excluded = MappingReadings { eligible: Some(false), ..seen() };
    assert_eq!(why(&excluded, "always"), Some(Reason::OffUnlessAdvised));
    assert_eq!(why(&excluded, "madvise"), Some(Reason::NeverAdvised));
    let advised = MappingReadings { advice: ThpAdvice::Huge, ..excluded.clone() };
    assert_eq!(why(&advised, "always"), Some(Reason::NotEligible));
    let mut old = machine("always");
    old.kernel = Some((6, 17));
    assert_eq!(most(&excluded, &old).map(|judged| judged.reason), Some(Reason::NotEligible));
}

#[test]
fn holes_are_named_with_the_allocator_that_purges() {
    let seen = MappingReadings { sparse: Bytes(40 * MIB), ..advised() };
    let machine = machine("madvise");
    assert_eq!(account(&seen, &machine), [(Reason::Holes, 40), (Reason::Eligible, 24)]);
    // Without a request, holes do not explain base pages.
    assert_eq!(
        why(&MappingReadings { sparse: Bytes(40 * MIB), ..self::seen() }, "madvise"),
        Some(Reason::NeverAdvised)
    );
    let judged = ReasonWithCauses { reason: Reason::Holes, fragmentation: true, split: true };
    let counts = PartCounts::default();
    let jemalloc = || Some(Runtime::Jemalloc { variable: "MALLOC_CONF".to_owned() });
    let (detail, actions) = says(judged, Kind::Anonymous, &counts, &machine, "", jemalloc());
    assert!(detail.contains("purged by the allocator, jemalloc (MADV_DONTNEED)"), "{detail}");
    assert!(actions.contains("dirty_decay_ms:-1 in MALLOC_CONF"), "{actions}");
    let has = says(judged, Kind::Anonymous, &counts, &machine, "MALLOC_CONF=dirty_decay_ms:-1", jemalloc());
    assert_eq!(has.1, "");
}

#[test]
fn what_the_process_has_is_not_advised() {
    let judged = ReasonWithCauses { reason: Reason::NeverAdvised, fragmentation: true, split: true };
    let machine = machine("madvise");
    let actions = |kind, environ: &str| says(judged, kind, &PartCounts::default(), &machine, environ, None).1;
    assert!(actions(Kind::Malloc, "").contains("glibc.malloc.hugetlb=1"));
    assert!(!actions(Kind::Malloc, "GLIBC_TUNABLES=glibc.malloc.hugetlb=1").contains("glibc.malloc"));
    assert!(actions(Kind::JvmLargePages, "").contains("-XX:+UseTransparentHugePages"));
    let has = "JAVA_TOOL_OPTIONS=-XX:+UseTransparentHugePages";
    assert!(!actions(Kind::JvmLargePages, has).contains("UseTransparentHugePages"));
    // No range is dense enough: `collapse` would do nothing.
    assert!(!actions(Kind::Malloc, "").contains("hugewise collapse"));
}
