//! Differences on machines made of plain files.

use std::error::Error;

use hugewise_linux::testing::tree;

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

const THP: &str = "sys/kernel/mm/transparent_hugepage";

/// 100 pages of 2 MiB, of which 30 are in use and 20 reserved; 4 GiB of memory available.
fn machine() -> (tempfile::TempDir, Root) {
    let dir = "sys/kernel/mm/hugepages/hugepages-2048kB";
    let files = [
        ("nr_hugepages", "100"),
        ("free_hugepages", "70"),
        ("resv_hugepages", "20"),
        ("surplus_hugepages", "0"),
        ("nr_overcommit_hugepages", "0"),
    ]
    .map(|(name, value)| (format!("{dir}/{name}"), value));
    let mut files: Vec<(&str, &str)> = files.iter().map(|(path, value)| (path.as_str(), *value)).collect();
    let (enabled, defrag) = (format!("{THP}/enabled"), format!("{THP}/defrag"));
    files.push((&enabled, "always [madvise] never\n"));
    files.push((&defrag, "always defer defer+madvise [madvise] never\n"));
    files.push(("proc/meminfo", "MemAvailable: 4194304 kB\n"));
    tree(&files)
}

fn two() -> PageSize {
    "2m".parse().unwrap_or_else(|_| unreachable!())
}

fn pool_of(node: Option<u32>, wanted: RequestedValue) -> SettingRequest {
    SettingRequest { setting: Setting::Pool { page_size: two(), node }, wanted, seen: None }
}

fn value(setting: Setting, value: &str) -> SettingRequest {
    SettingRequest { setting, wanted: RequestedValue::Value(value.to_owned()), seen: None }
}

const ENABLED: Setting = Setting::ThpEnabled { page_size: None };
const FLOOR: Bytes = Bytes(1 << 30);

fn read(requests: &[SettingRequest]) -> Result<Difference, DifferenceError> {
    let (_dir, root) = machine();
    Difference::read(&root, requests, FLOOR)
}

#[test]
fn a_pool_is_set_grown_or_made_large_enough() -> TestResult {
    for (wanted, to) in [
        (RequestedValue::Value("1000".to_owned()), "1000"),
        (RequestedValue::Value("100".to_owned()), "100"),
        (RequestedValue::More(Pages(200)), "300"),
        // 50 are available.
        (RequestedValue::Available(Pages(65)), "115"),
        (RequestedValue::Available(Pages(50)), "100"),
    ] {
        let difference = read(&[pool_of(None, wanted)])?;
        let change = &difference.changes[0];
        assert_eq!((change.from.as_str(), change.to.as_str()), ("100", to));
        assert_eq!(difference.is_empty(), to == "100");
        assert_eq!((difference.objections, difference.notes), (vec![], vec![]));
    }
    Ok(())
}

#[test]
fn a_pool_below_the_floor_is_an_objection() -> TestResult {
    // 1537 pages are 3 GiB and 2 MiB.
    let difference = read(&[pool_of(None, RequestedValue::More(Pages(1537)))])?;
    let [objection] = &difference.objections[..] else { return Err("no objection".into()) };
    for word in ["3.0GiB of 4GiB", "1GiB must stay"] {
        assert!(objection.contains(word), "{objection}");
    }
    assert!(read(&[pool_of(None, RequestedValue::More(Pages(1536)))])?.objections.is_empty());
    let (_dir, root) = machine();
    std::fs::remove_file(root.path("proc/meminfo"))?;
    let unknown = Difference::read(&root, &[pool_of(None, RequestedValue::More(Pages(1)))], FLOOR)?;
    assert!(unknown.objections[0].contains("unknown"), "{unknown:?}");
    Ok(())
}

#[test]
fn a_pool_that_others_changed_since_the_plan_is_counted_anew() -> TestResult {
    let mut request = pool_of(None, RequestedValue::Available(Pages(80)));
    request.seen = Some(ValueAtPlan::Pool { total: Pages(0), available: Pages(0) });
    let difference = read(&[request.clone()])?;
    assert_eq!(difference.changes[0].to, "130");
    assert!(difference.notes[0].contains("had 0 pages") && difference.notes[0].contains("counted again"));
    request.seen = Some(ValueAtPlan::Pool { total: Pages(100), available: Pages(50) });
    assert!(read(&[request])?.notes.is_empty());
    Ok(())
}

#[test]
fn a_setting_changed_since_the_plan_is_an_objection() -> TestResult {
    let planned = |seen: &str, to: &str| {
        let seen = Some(ValueAtPlan::Value(seen.to_owned()));
        SettingRequest { seen, ..value(ENABLED, to) }
    };
    let difference = read(&[planned("never", "always")])?;
    assert!(difference.objections[0].contains("was never when the plan was made, and is madvise now"));
    assert!(read(&[planned("madvise", "always")])?.objections.is_empty());
    let done = read(&[planned("never", "madvise")])?;
    assert!(done.objections.is_empty() && done.is_empty());
    Ok(())
}

#[test]
fn invalid_requests_are_refused_with_the_valid_values() {
    for (request, said) in [
        (value(ENABLED, "sometimes"), "always, madvise, never"),
        (value(Setting::Pool { page_size: two(), node: None }, "many"), "not a whole number"),
        (pool_of(Some(3), RequestedValue::More(Pages(1))), "there are pools of 2MiB"),
        (
            value(Setting::Overcommit { page_size: two() }, "-1"),
            "the overcommit of 2MiB pages cannot be set: '-1' is not a whole number",
        ),
        (value(Setting::ShmMax, "1"), "no kernel.shmmax: there is no /proc/sys/kernel/shmmax"),
        (SettingRequest { wanted: RequestedValue::More(Pages(1)), ..value(ENABLED, "") }, "only pools"),
    ] {
        let said_now = read(&[request]).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said_now.contains(said), "{said}: {said_now}");
    }
    let twice = [value(ENABLED, "always"), value(ENABLED, "never")];
    assert!(matches!(read(&twice), Err(DifferenceError::Twice(_))));
}

#[test]
fn memory_is_given_back_before_it_is_taken_and_pages_in_use_are_named() -> TestResult {
    let difference =
        read(&[pool_of(None, RequestedValue::Value("10".to_owned())), value(ENABLED, "always")])?;
    assert_eq!(difference.changes[0].setting, ENABLED);
    assert!(difference.notes[0].contains("40 pages of the pool of 2MiB pages are in use or reserved"));
    Ok(())
}
