//! Compares `inspect` with the kernel's tools `thpmaps` and `page-types` (tools/mm of its source), on a
//! stopped process. HUGEWISE_THPMAPS and HUGEWISE_PAGE_TYPES name the programs.

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    process::{Command, Stdio},
};

use hugewise_linux::settings::Setting;
use serde_json::Value;

use crate::{
    TestResult, Trial,
    inspect::{Jvm, grow_pool, journal},
    needs::{
        Need::{Java, KernelTools, Pool, Root, Thp},
        PAGE_TYPES, THPMAPS,
    },
    start::run,
    trial,
};

const HEAP: [&str; 3] = ["-Xms1g", "-Xmx1g", "-XX:+AlwaysPreTouch"];

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Pool, Thp, Java, KernelTools];
    let jvm = |backing, options: &'static [&'static str], pages, mthp| {
        let name = format!("inspect: a JVM on {backing} counts as thpmaps and page-types count");
        trial(&name, &needs, move || same(options, pages, mthp))
    };
    vec![
        jvm("base pages", &[], 0, false),
        jvm("THP", &["-XX:+UseTransparentHugePages"], 0, false),
        jvm("a pool", &["-XX:+UseLargePages"], 700, false),
        jvm("mTHP of 64KiB", &[], 0, true),
    ]
}

fn same(options: &[&str], pages: u64, mthp: bool) -> TestResult {
    let mut journal = journal()?;
    journal.set(Setting::ThpEnabled { page_size: None }, "madvise")?;
    if pages > 0 {
        grow_pool(&mut journal, pages)?;
    }
    if mthp {
        journal.set(Setting::ThpEnabled { page_size: Some("64k".parse()?) }, "always")?;
    }
    let jvm = Jvm::start(None, &[&HEAP[..], options].concat())?;
    jvm.stop()?;
    let pid = jvm.child.id().to_string();
    let ours = InspectTotals::of(&pid)?;
    let tools = thpmaps(&pid)?;
    let flags = page_types(&pid)?;

    let sum =
        |part: &str| -> u64 { tools.iter().filter(|(key, _)| key.contains(part)).map(|(_, kib)| kib).sum() };
    for size in [16u64, 32, 64, 128, 256, 512, 1024] {
        let expected = sum(&format!("-pte-aligned-{size}kB"));
        assert_eq!(ours.on(size << 10), expected << 10, "{size} KiB: {tools:?} {ours:?}");
    }
    assert_eq!(ours.on(2 << 20), sum("-pmd-aligned-") << 10, "{tools:?} {ours:?}");
    assert_eq!(ours.split, sum("-pte-aligned-2048kB") << 10, "{tools:?} {ours:?}");
    // thpmaps omits folios of two pages.
    let in_part = (sum("-unaligned-") + sum("-partial")) << 10;
    assert!(ours.in_part == in_part || (ours.in_part > in_part && ours.on(8192) > 0), "{tools:?} {ours:?}");

    let count = |flag: &str| -> u64 {
        flags.iter().filter(|(names, _)| names.split(',').any(|name| name == flag)).map(|(_, n)| n).sum()
    };
    let zero = count("zero_page");
    let all: u64 = flags.values().sum();
    let large = ours.mthp() + ours.on(2 << 20) + ours.split + ours.in_part;
    assert_eq!(large >> 12, count("thp"), "{flags:?} {ours:?}");
    assert_eq!(ours.hugetlb >> 12, count("huge"), "{flags:?} {ours:?}");
    assert_eq!(ours.resident >> 12, all - zero, "{flags:?} {ours:?}");
    assert!(!mthp || ours.on(64 << 10) > 1 << 29, "the JVM got no folios of 64 KiB: {ours:?}");
    assert!(pages == 0 || ours.hugetlb > 1 << 29, "the JVM got no pages of the pool: {ours:?}");
    Ok(())
}

/// Sums over the regions; `by_size` is without pool pages.
#[derive(Debug, Default)]
struct InspectTotals {
    by_size: BTreeMap<u64, u64>,
    hugetlb: u64,
    split: u64,
    in_part: u64,
    resident: u64,
}

impl InspectTotals {
    fn of(pid: &str) -> Result<InspectTotals, Box<dyn Error>> {
        let inspected: Value =
            serde_json::from_str(&run(&["inspect", pid, "--json", "--full"])?.ended_with(0)?.stdout)?;
        let mut ours = InspectTotals::default();
        for region in inspected["regions"].as_array().ok_or("no regions")? {
            let number = |field: &str| region[field].as_u64().unwrap_or(0);
            ours.hugetlb += number("hugetlb_bytes");
            ours.split += number("split_bytes");
            ours.in_part += number("part_of_folio_bytes");
            ours.resident += number("resident_bytes");
            if number("hugetlb_bytes") == 0 {
                for (size, bytes) in region["bytes_by_page_size"].as_object().ok_or("no sizes")? {
                    *ours.by_size.entry(size.parse()?).or_default() += bytes.as_u64().unwrap_or(0);
                }
            }
        }
        Ok(ours)
    }

    fn on(&self, size: u64) -> u64 {
        self.by_size.get(&size).copied().unwrap_or(0)
    }

    fn mthp(&self) -> u64 {
        self.by_size.range(4097..2 << 20).map(|(_, bytes)| bytes).sum()
    }
}

fn output(variable: &str, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let program = env::var_os(variable).ok_or("not named")?;
    let output = Command::new(program).args(arguments).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{variable} failed: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// `anon-thp-pte-aligned-64kB:   1048576 kB (99%)`
fn thpmaps(pid: &str) -> Result<BTreeMap<String, u64>, Box<dyn Error>> {
    let text = output(THPMAPS, &["--pid", pid, "--rollup"])?;
    let line = |line: &str| {
        let (key, value) = line.split_once(':')?;
        Some((key.to_owned(), value.split_whitespace().next()?.parse().ok()?))
    };
    Ok(text.lines().filter_map(line).collect())
}

/// `0x…  70144  274  ___U_l…  uptodate,lru,mmap,anonymous,swapbacked,thp`
fn page_types(pid: &str) -> Result<BTreeMap<String, u64>, Box<dyn Error>> {
    let text = output(PAGE_TYPES, &["-p", pid])?;
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        words.next()?.strip_prefix("0x")?;
        let count = words.next()?.parse().ok()?;
        Some((words.nth(2).unwrap_or_default().to_owned(), count))
    };
    Ok(text.lines().filter_map(line).collect())
}
