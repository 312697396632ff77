use hugewise_linux::units::PageSize;

use super::*;

const MIB: u64 = 1 << 20;

fn machine(enabled: &str) -> Machine {
    let root = hugewise_linux::root::Root::at("/nonexistent");
    let thp = hugewise_linux::hugepages::thp::read(&root);
    let decided = |word: &str| Some((word.to_owned(), PathBuf::from("sys/kernel/mm/enabled")));
    Machine {
        sizes: hugewise_linux::hugepages::page_sizes::PageSizes {
            base: size("4k"),
            thp: Some(size("2m")),
            hugetlb: Vec::new(),
            default_hugetlb: None,
        },
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
fn seen() -> Seen {
    Seen {
        addresses: 64 * MIB..128 * MIB,
        offset: 0,
        memory: Memory::Anonymous,
        advice: Advice::None,
        eligible: Some(true),
        small: Bytes(64 * MIB),
        thp: Bytes::ZERO,
        split: Bytes::ZERO,
        swap: Bytes::ZERO,
        process_off: false,
        wants_pool: false,
    }
}

fn advised() -> Seen {
    Seen { advice: Advice::Huge, ..seen() }
}

fn why(seen: &Seen, enabled: &str) -> Option<Reason> {
    judge(seen, &machine(enabled)).map(|judged| judged.reason)
}

#[test]
fn what_is_huge_or_absent_needs_no_reason() {
    assert_eq!(why(&Seen { small: Bytes::ZERO, thp: Bytes(64 * MIB), ..seen() }, "madvise"), None);
    assert_eq!(why(&Seen { memory: Memory::Pool, ..seen() }, "madvise"), None);
}

#[test]
fn settings_and_advice_decide_together() {
    for (advice, enabled, expected) in [
        (Advice::None, "madvise", Reason::NeverAdvised),
        (Advice::Huge, "madvise", Reason::Eligible),
        (Advice::NoHuge, "madvise", Reason::OffHere),
        (Advice::None, "always", Reason::Eligible),
        (Advice::NoHuge, "always", Reason::OffHere),
        (Advice::None, "never", Reason::OffGlobally),
        (Advice::Huge, "never", Reason::OffGlobally),
    ] {
        assert_eq!(why(&Seen { advice, ..seen() }, enabled), Some(expected), "{advice:?} under {enabled}");
    }
}

#[test]
fn shared_memory_has_a_setting_of_its_own() {
    let shared = Seen { memory: Memory::Shared, ..advised() };
    assert_eq!(why(&shared, "always"), Some(Reason::OffGlobally));
    let mut machine = machine("never");
    machine.shared = Some(("advise".to_owned(), PathBuf::from("shmem_enabled")));
    let reason = |seen: &Seen| judge(seen, &machine).map(|judged| judged.reason);
    assert_eq!(reason(&shared), Some(Reason::Eligible));
    assert_eq!(reason(&Seen { advice: Advice::None, ..shared.clone() }), Some(Reason::NeverAdvised));
    // An address whose place in the file is not aligned alike can never be huge.
    assert_eq!(reason(&Seen { offset: 4096, ..shared }), Some(Reason::NotAligned));
}

#[test]
fn geometry_comes_first() {
    let small = Seen { addresses: 64 * MIB..65 * MIB, small: Bytes(MIB), ..seen() };
    assert_eq!(why(&small, "never"), Some(Reason::TooSmall));
    let crooked = Seen { addresses: 65 * MIB..67 * MIB, small: Bytes(2 * MIB), ..seen() };
    assert_eq!(why(&crooked, "madvise"), Some(Reason::NotAligned));
    // All three whole pages are huge; what is left lies before and behind them.
    let edges =
        Seen { addresses: 63 * MIB..71 * MIB, thp: Bytes(6 * MIB), small: Bytes(2 * MIB), ..advised() };
    assert_eq!(why(&edges, "madvise"), Some(Reason::NotAligned));
    let one_missing = Seen { thp: Bytes(4 * MIB), ..edges };
    assert_eq!(why(&one_missing, "madvise"), Some(Reason::Eligible));
}

#[test]
fn what_the_process_gave_up_is_said_before_the_settings() {
    assert_eq!(why(&Seen { process_off: true, ..seen() }, "madvise"), Some(Reason::OffByPrctl));
    assert_eq!(why(&Seen { wants_pool: true, ..seen() }, "madvise"), Some(Reason::PoolShortAtStart));
}

#[test]
fn evidence_of_one_mapping_goes_before_guesses() {
    let split = Seen { split: Bytes(40 * MIB), ..advised() };
    assert_eq!(why(&split, "madvise"), Some(Reason::SplitSince));
    assert_eq!(why(&Seen { split: Bytes(2 * MIB), ..advised() }, "madvise"), Some(Reason::Eligible));
    assert_eq!(why(&Seen { swap: Bytes(4096), ..advised() }, "madvise"), Some(Reason::Swapped));
    assert_eq!(why(&Seen { eligible: Some(false), ..advised() }, "madvise"), Some(Reason::NotEligible));
    assert_eq!(why(&Seen { eligible: None, ..advised() }, "madvise"), Some(Reason::Eligible));
}

#[test]
fn files_and_the_kernel_are_not_judged_by_settings() {
    assert_eq!(why(&Seen { memory: Memory::File, ..seen() }, "never"), Some(Reason::File));
    assert_eq!(why(&Seen { memory: Memory::Kernel, ..seen() }, "never"), Some(Reason::Kernel));
}

#[test]
fn candidates_are_those_that_the_counters_allow() -> Result<(), &'static str> {
    let mut machine = machine("madvise");
    let judged = judge(&advised(), &machine).ok_or("no reason")?;
    let all = [Reason::AdvisedAfterTouch, Reason::FragmentationThen, Reason::SplitSince];
    assert_eq!(judged.candidates(), all);
    let evidence = Evidence { pid: 7, split: Bytes::ZERO, swap: Bytes::ZERO, memory: Memory::Anonymous };
    let said = words(judged, &evidence, &machine).detail;
    assert!(said.contains("3 failures") && said.contains("possible causes"), "{said}");
    // No fault ever failed to get one, and none was split: one is left.
    (machine.fault_fallbacks, machine.splits) = (Some(0), Some(0));
    let judged = judge(&advised(), &machine).ok_or("no reason")?;
    assert_eq!((judged.reason, judged.candidates().len()), (Reason::AdvisedAfterTouch, 0));
    // A kernel that does not count excludes nothing.
    (machine.fault_fallbacks, machine.splits) = (None, Some(0));
    let judged = judge(&advised(), &machine).ok_or("no reason")?;
    assert_eq!(judged.candidates(), [Reason::AdvisedAfterTouch, Reason::FragmentationThen]);
    Ok(())
}

#[test]
fn settings_that_were_not_read_are_not_made_up() {
    let mut unknown = machine("always");
    unknown.anonymous = None;
    assert_eq!(judge(&seen(), &unknown).map(|judged| judged.reason), Some(Reason::Unknown));
    unknown.sizes.thp = None;
    assert_eq!(judge(&seen(), &unknown).map(|judged| judged.reason), Some(Reason::OffGlobally));
}
