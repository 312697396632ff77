use hugewise_linux::{
    cgroup::{self, HugetlbLimits, Limit},
    reading::Reading,
    root::Root,
};
use proptest::prelude::*;

use super::*;

fn size(text: &str) -> PageSize {
    text.parse().expect("a page size")
}

/// Control groups without a limit.
fn no_limits() -> CgroupLimits {
    let unknown = cgroup::read(&Root::at("/nowhere"), &[]);
    CgroupLimits { memory: Reading::Known(None), ..unknown }
}

/// A machine with `available` free 2 MiB pages, and a program on glibc 2.36.
fn facts(available: u64) -> SelectionFacts {
    SelectionFacts {
        sizes: PageSizes {
            base: size("4k"),
            thp: Some(size("2m")),
            hugetlb: vec![size("2m")],
            default_hugetlb: Some(size("2m")),
        },
        pools: vec![Pool {
            page_size: size("2m"),
            node: None,
            total: Pages(available),
            free: Pages(available),
            reserved: Some(Pages(0)),
            surplus: Pages(0),
            overcommit: Some(Pages(1000)),
        }],
        cgroup: no_limits(),
        thp: Some("madvise".to_owned()),
        shared_thp: Some("never".to_owned()),
        may_use_huge_segments: Some(true),
        processors: 2,
        c_library: Ok(CLibrary::Glibc { version: Some((2, 36)), dir: "lib".into() }),
        allocator: None,
        jemalloc: None,
        privileged: false,
        collapse_obstacle: Some("it needs CAP_SYS_NICE".to_owned()),
    }
}

fn offer(backing: Backing, option: &str, pages: u64) -> BackingSupport {
    let pages = if pages > 0 { vec![(size("2m"), Pages(pages))] } else { Vec::new() };
    BackingSupport { backing, options: Ok(vec![option.to_owned()]), pages }
}

fn answers() -> JvmAnswers {
    JvmAnswers {
        version: "17.0.15".to_owned(),
        collector: "G1".to_owned(),
        max_heap: Bytes(1 << 30),
        offers: vec![
            offer(Backing::Hugetlb(None), "+UseLargePages", 651),
            offer(Backing::Thp, "+UseTransparentHugePages", 0),
            offer(Backing::Base, "-UseLargePages", 0),
        ],
    }
}

fn chosen(wanted: BackingRequest, facts: &SelectionFacts) -> BackingSelection {
    choose(&wanted, Some(&answers()), facts).expect("a choice")
}

#[test]
fn auto_takes_the_pool_if_it_suffices_then_thp_then_base() {
    let auto = BackingRequest::default();
    let choice = chosen(auto, &facts(651));
    assert_eq!((choice.backing, choice.disable_thp), (Backing::Hugetlb(None), false));
    assert_eq!(choice.why, "backing hugetlb: it needs 651 pages of 2MiB, and 651 are available");
    let choice = chosen(auto, &facts(650));
    assert_eq!(
        (choice.backing, choice.options.as_slice()),
        (Backing::Thp, &["+UseTransparentHugePages".to_owned()][..])
    );
    assert_eq!(
        choice.why,
        "backing thp; hugetlb is not available: it needs 651 pages of 2MiB, and 650 are available"
    );
    let off = SelectionFacts { thp: Some("never".to_owned()), ..facts(0) };
    assert_eq!(chosen(auto, &off).backing, Backing::Base);
    let zgc = JvmAnswers { collector: "ZGC".to_owned(), ..answers() };
    assert_eq!(choose(&auto, Some(&zgc), &facts(0)).map(|choice| choice.backing), Ok(Backing::Base));
}

#[test]
fn a_control_group_counts_as_the_pool_does() {
    let limit = |bytes, used| Limit {
        bytes: Bytes(bytes),
        used: Reading::Known(Bytes(used)),
        left: Reading::Known(Bytes(bytes - used)),
        file: "f".into(),
    };
    let limits = HugetlbLimits {
        page_size: size("2m"),
        touch: Reading::Known(Some(limit(1400 << 20, 100 << 20))),
        reserve: Reading::Known(None),
    };
    let cgroup = CgroupLimits { hugetlb: vec![limits], ..no_limits() };
    let choice = chosen(BackingRequest::default(), &SelectionFacts { cgroup, ..facts(2000) });
    assert_eq!(choice.backing, Backing::Thp);
    assert!(choice.why.ends_with("the control group allows 650 more"), "{}", choice.why);
}

/// A heap on base pages or THP is charged to the memory limit, one on pool pages is not.
#[test]
fn a_heap_beyond_the_memory_limit_is_warned_of_and_refused_if_strict() {
    let limited = |left: Reading<Bytes>, pages| {
        let limit = Limit {
            bytes: Bytes(600 << 20),
            used: Reading::unknown("no file"),
            left,
            file: "memory.max".into(),
        };
        let cgroup = CgroupLimits { memory: Reading::Known(Some(limit)), ..no_limits() };
        SelectionFacts { cgroup, ..facts(pages) }
    };
    let auto = BackingRequest::default();
    let tight = limited(Reading::Known(Bytes(580 << 20)), 0);
    let warning = chosen(auto, &tight).warning.unwrap_or_default();
    assert!(
        warning.contains("allows 580MiB more (limit 600MiB, /memory.max), and its heap may take 1GiB"),
        "{warning}"
    );
    let strict = BackingRequest { backing: Some(Backing::Thp), strict: true, ..auto };
    assert!(choose(&strict, Some(&answers()), &tight).is_err());
    assert_eq!(chosen(auto, &limited(Reading::Known(Bytes(580 << 20)), 651)).warning, None);
    assert_eq!(chosen(auto, &limited(Reading::Known(Bytes(1 << 30)), 0)).warning, None);
    assert_eq!(chosen(auto, &limited(Reading::unknown("no memory.current"), 0)).warning, None);
}

#[test]
fn strict_refuses_what_would_fall_back() {
    let strict =
        BackingRequest { backing: Some(Backing::Hugetlb(None)), strict: true, ..BackingRequest::default() };
    let refused = choose(&strict, Some(&answers()), &facts(3)).expect_err("a refusal");
    assert_eq!(
        refused.to_string(),
        "hugetlb is not available: it needs 651 pages of 2MiB, and 3 are available (--strict)"
    );
    let never = SelectionFacts { thp: Some("never".to_owned()), ..facts(0) };
    let auto = BackingRequest { strict: true, ..BackingRequest::default() };
    assert_eq!(choose(&auto, Some(&answers()), &facts(0)).map(|choice| choice.backing), Ok(Backing::Thp));
    assert!(choose(&auto, Some(&answers()), &never).is_err());
    let off_heap = BackingRequest { off_heap: Some(OffHeap::Hugetlb), ..auto };
    assert!(choose(&off_heap, Some(&answers()), &facts(0)).is_err());
}

#[test]
fn malloc_leaves_the_heap_its_pages() {
    let wanted = BackingRequest { off_heap: Some(OffHeap::Hugetlb), ..BackingRequest::default() };
    // Malloc allocates first: the heap must fit into the pages that malloc leaves.
    assert_eq!(chosen(wanted, &facts(660)).backing, Backing::Thp);
    let choice = chosen(wanted, &facts(700));
    assert_eq!(choice.backing, Backing::Hugetlb(None));
    assert_eq!(choice.malloc, MallocSettings::glibc(Backing::Hugetlb(None), &facts(700).sizes).ok());
    assert!(choice.why.contains("49 pages of 2MiB (98MiB) are left for it"), "{}", choice.why);
}

#[test]
fn thp_for_malloc_by_what_works_here() {
    let wanted = BackingRequest { off_heap: Some(OffHeap::Thp), ..BackingRequest::default() };
    let means = |facts: &SelectionFacts| chosen(wanted, facts).malloc;
    let one_arena = means(&facts(0)).expect("means").variables(&|_| Some("a.b=1".to_owned()));
    let tunables = "a.b=1:glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1:glibc.malloc.mmap_threshold=33554432:\
                    glibc.malloc.trim_threshold=67108864";
    assert_eq!(one_arena, [("GLIBC_TUNABLES", tunables.to_owned())]);
    let jemalloc = Some(PathBuf::from("usr/lib/libjemalloc.so.2"));
    let many = SelectionFacts { processors: 64, jemalloc: jemalloc.clone(), ..facts(0) };
    assert_eq!(
        means(&many).expect("means").variables(&|name| (name == "LD_PRELOAD").then(|| "x.so".to_owned())),
        [
            ("LD_PRELOAD", "/usr/lib/libjemalloc.so.2:x.so".to_owned()),
            ("MALLOC_CONF", "thp:always,metadata_thp:auto".to_owned())
        ]
    );
    let old = Ok(CLibrary::Glibc { version: Some((2, 31)), dir: "lib".into() });
    let old = SelectionFacts { c_library: old, ..facts(0) };
    assert!(chosen(wanted, &old).why.contains("is unchanged: the program's malloc is that of glibc 2.31"));
    let root = SelectionFacts { collapse_obstacle: None, ..old.clone() };
    let choice = chosen(wanted, &root);
    assert_eq!((choice.malloc, choice.collapse), (Some(MallocSettings::Nothing), true));
    assert!(matches!(means(&SelectionFacts { jemalloc, ..old }), Some(MallocSettings::Preload(_))));
    // A collapse is possible even if the THP mode is never.
    let never = SelectionFacts { thp: Some("never".to_owned()), collapse_obstacle: None, ..facts(0) };
    assert_eq!(means(&never), Some(MallocSettings::Nothing));
    assert_eq!(means(&SelectionFacts { privileged: true, ..facts(0) }), None);
}

#[test]
fn other_programs_are_asked_through_malloc() {
    let choose = |wanted: BackingRequest, facts: &SelectionFacts| choose(&wanted, None, facts);
    let auto = choose(BackingRequest::default(), &facts(5000)).expect("a choice");
    assert_eq!(auto.backing, Backing::Thp);
    assert!(auto.why.contains("auto takes no pool"), "{}", auto.why);
    let base =
        choose(BackingRequest { backing: Some(Backing::Base), ..BackingRequest::default() }, &facts(0))
            .expect("a choice");
    assert!(base.disable_thp && base.malloc.is_none());
    let named =
        BackingRequest { backing: Some(Backing::Hugetlb(Some(size("2m")))), ..BackingRequest::default() };
    let named = choose(named, &facts(9)).expect("a choice").malloc;
    let tunables = named.expect("settings").variables(&|_| None);
    let expected = "glibc.malloc.hugetlb=2097152:glibc.malloc.mmap_threshold=2097152";
    assert_eq!(tunables, [("GLIBC_TUNABLES", expected.to_owned())]);
    assert!(
        choose(BackingRequest { backing: Some(Backing::Shm(None)), ..BackingRequest::default() }, &facts(0))
            .is_err()
    );
    let fixed = SelectionFacts { c_library: Ok(CLibrary::Static), ..facts(0) };
    let auto = choose(BackingRequest::default(), &fixed).expect("a choice");
    assert_eq!((auto.backing, auto.disable_thp), (Backing::Base, false));
}

#[test]
fn a_pool_for_an_unknown_demand_must_have_a_page() {
    let offers = vec![
        offer(Backing::Hugetlb(None), "+UseLargePages", 0),
        offer(Backing::Thp, "+UseTransparentHugePages", 0),
    ];
    let answers = JvmAnswers { offers, ..answers() };
    let wanted = BackingRequest { backing: Some(Backing::Hugetlb(None)), ..BackingRequest::default() };
    let choice = choose(&wanted, Some(&answers), &facts(7)).expect("a choice");
    assert_eq!(choice.why, "backing hugetlb: its demand is unknown, and 7 are available");
    let choice = choose(&wanted, Some(&answers), &facts(0)).expect("a choice");
    assert_eq!(choice.why, "backing thp; hugetlb is not available: the pool has no page left");
    assert!(choose(&BackingRequest { strict: true, ..wanted }, Some(&answers), &facts(0)).is_err());
}

#[test]
fn the_programs_own_malloc_takes_its_own_options() {
    let means = |allocator, backing| {
        let facts = SelectionFacts { allocator: Some(allocator), ..facts(5000) };
        choose(&BackingRequest { backing, ..BackingRequest::default() }, None, &facts).expect("a choice")
    };
    let choice = means(Allocator::Jemalloc, None);
    let variables = choice.malloc.expect("settings").variables(&|_| Some("narenas:1".to_owned()));
    assert_eq!(variables, [("MALLOC_CONF", "narenas:1,thp:always,metadata_thp:auto".to_owned())]);
    for (allocator, backing) in
        [(Allocator::Jemalloc, Some(Backing::Hugetlb(None))), (Allocator::Other("tcmalloc"), None)]
    {
        let choice = means(allocator, backing);
        assert_eq!(choice.malloc, None);
        assert!(choice.why.contains(allocator.name()), "{}", choice.why);
    }
}

#[test]
fn no_library_takes_the_place_of_a_heap_of_the_program() {
    let go = Allocator::BuiltIn("the Go runtime's");
    let with = |collapse_obstacle, wanted| {
        let jemalloc = Some(PathBuf::from("lib/libjemalloc.so.2"));
        let facts = SelectionFacts { allocator: Some(go), jemalloc, collapse_obstacle, ..facts(5000) };
        choose(&wanted, None, &facts).expect("a choice")
    };
    let choice = with(None, BackingRequest::default());
    assert_eq!((choice.malloc, choice.collapse), (Some(MallocSettings::Nothing), true));
    assert!(choice.why.contains(go.name()) && !choice.why.contains("--backing hugetlb"), "{}", choice.why);
    let choice = with(Some("no right".to_owned()), BackingRequest::default());
    assert!(choice.malloc.is_none() && choice.why.contains(go.name()), "{}", choice.why);
    let choice = with(None, BackingRequest { malloc: Malloc::Jemalloc, ..BackingRequest::default() });
    assert!(choice.malloc.is_none() && choice.why.contains(go.name()), "{}", choice.why);
}

proptest! {
    /// For any pool, the selected backing is available, and `strict` permits only the requested one.
    #[test]
    fn never_more_than_there_is(available in 0u64..1500, strict in any::<bool>(), off_heap in 0usize..3) {
        let off_heap = [None, Some(OffHeap::Thp), Some(OffHeap::Hugetlb)][off_heap];
        let backing = Some(Backing::Hugetlb(None));
        let wanted = BackingRequest { backing, off_heap, strict, malloc: Malloc::Auto };
        if let Ok(choice) = choose(&wanted, Some(&answers()), &facts(available)) {
            prop_assert!(choice.backing != Backing::Hugetlb(None) || available >= 651);
            prop_assert!(!strict || choice.backing == Backing::Hugetlb(None));
            prop_assert!(!strict || off_heap.is_none() || choice.malloc.is_some());
        }
    }
}
