//! The settings of each format, and that no text in a command line breaks them.

use std::{error::Error, fs, path::Path};

use proptest::prelude::*;
use serde_json::Value;

use super::{samples, *};

type TestResult = Result<(), Box<dyn Error>>;

/// Environment variable that makes the test write the examples of the page.
const WRITE_VARIABLE: &str = "HUGEWISE_WRITE_FORMATS";

/// The sample that the page shows for each format.
fn examples() -> serde_json::Result<Vec<(Format, Plan)>> {
    Ok(vec![
        (Format::Sysctl, samples::hugetlb()?),
        (Format::Tmpfiles, samples::thp()?),
        (Format::Limits, samples::shm()?),
        (Format::Systemd, samples::hugetlb()?),
        (Format::Kernel, samples::nodes()?),
        (Format::Tuned, samples::nodes()?),
        (Format::Kubernetes, samples::hugetlb()?),
        (Format::Docker, samples::hugetlb()?),
        (Format::Compose, samples::shm()?),
    ])
}

fn name(format: Format) -> String {
    format.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The lines that are not comments.
fn settings(plan: &Plan, format: Format) -> Result<Vec<String>, FormatError> {
    let text = render(plan, format, None)?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

#[test]
fn the_page_shows_what_is_printed() -> TestResult {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    let mut page = fs::read_to_string(&file)?;
    for (format, plan) in examples()? {
        let name = name(format);
        let section = page.find(&format!("\n## {name}\n")).ok_or(format!("no section {name}"))?;
        let begin = page[section..].find("\n```").ok_or(format!("no example of {name}"))? + section + 1;
        let begin = page[begin..].find('\n').map_or(begin, |end| begin + end + 1);
        let end = page[begin..].find("```\n").map_or(page.len(), |end| begin + end);
        let now = render(&plan, format, None)?;
        if std::env::var_os(WRITE_VARIABLE).is_some() {
            page.replace_range(begin..end, &now);
        } else {
            assert!(
                page[begin..end] == now,
                "{name} is stale: {WRITE_VARIABLE}=1 cargo test writes it anew\n{now}"
            );
        }
    }
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        fs::write(&file, &page)?;
    }
    assert_eq!(examples()?.len(), Format::value_variants().len(), "each format has its example");
    Ok(())
}

#[test]
fn each_pool_is_set_in_whole_where_it_can_be() -> TestResult {
    let (one, nodes) = (samples::hugetlb()?, samples::nodes()?);
    assert_eq!(settings(&one, Format::Sysctl)?, ["vm.nr_hugepages = 1264"]);
    assert_eq!(
        settings(&one, Format::Tmpfiles)?,
        ["w /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages - - - - 1264"]
    );
    assert_eq!(
        settings(&nodes, Format::Tmpfiles)?,
        [
            "w /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages - - - - 120",
            "w /sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages - - - - 2",
            "w /sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages - - - - 2",
        ]
    );
    let line = "hugepagesz=2M hugepages=120 hugepagesz=1G hugepages=0:2,1:2";
    assert_eq!(settings(&nodes, Format::Kernel)?, [line]);
    let tuned = render(&nodes, Format::Tuned, None)?;
    assert!(tuned.contains("\n[bootloader]\ncmdline_hugewise=+hugepagesz=1G hugepages=0:2,1:2\n"), "{tuned}");
    // The sysctl counts pages of the default size: with 1GiB pages, the pool would be 512 times as large.
    let sysctl = render(&nodes, Format::Sysctl, None)?;
    assert!(sysctl.contains("\nvm.nr_hugepages = 120\n") && sysctl.contains("tmpfiles"), "{sysctl}");
    let giant_default = Plan { default_page_size_bytes: Some("1g".parse()?), ..nodes.clone() };
    assert!(
        render(&giant_default, Format::Sysctl, None)
            .is_err_and(|error| error.to_string().contains("tmpfiles"))
    );
    Ok(())
}

#[test]
fn pages_that_others_have_stay_theirs() -> TestResult {
    let mut plan = samples::hugetlb()?;
    (plan.pools[0].pages_in_pool, plan.pools[0].pages_to_add) = (Pages(500), Pages(1264));
    assert_eq!(settings(&plan, Format::Sysctl)?, ["vm.nr_hugepages = 1764"]);
    // A reboot resets pools: a pool that is large enough now is set as well.
    (plan.pools[0].pages_in_pool, plan.pools[0].pages_to_add) = (Pages(2000), Pages(0));
    assert_eq!(settings(&plan, Format::Sysctl)?, ["vm.nr_hugepages = 2000"]);
    Ok(())
}

#[test]
fn transparent_huge_pages_are_set_by_size_or_for_all() -> TestResult {
    let mut plan = samples::thp()?;
    let both = "transparent_hugepage=madvise transparent_hugepage_shmem=advise";
    assert_eq!(settings(&plan, Format::Kernel)?, [both]);
    let tuned = ["[vm]", "transparent_hugepages=madvise", "[sysfs]"];
    assert_eq!(settings(&plan, Format::Tuned)?[2..5], tuned);
    // Without 2M, the parameter would disable the size of the heap.
    let (small, base) = ("64KiB".parse::<PageSize>()?, "4KiB".parse::<PageSize>()?);
    plan.settings.truncate(1);
    plan.settings[0].setting = Setting::ThpEnabled { page_size: Some(small) };
    plan.regions
        .push(hugewise_jvm::demand::RegionDemand { page_size_bytes: base, ..plan.regions[0].clone() });
    assert_eq!(settings(&plan, Format::Kernel)?, ["thp_anon=64K:madvise;2M:inherit"]);
    plan.settings[0].to = "madvise\nw /etc/passwd".to_owned();
    for format in Format::value_variants() {
        assert!(render(&plan, *format, None).is_err(), "{format:?}");
    }
    Ok(())
}

#[test]
fn shared_memory_takes_its_right_and_nothing_else_does() -> TestResult {
    for (_, plan) in samples::all()? {
        for format in Format::value_variants() {
            let Ok(text) = render(&plan, *format, None) else { continue };
            let body: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
            let privileged = ["IPC_LOCK", "memlock", "shm"].iter().any(|word| body.join("\n").contains(word));
            let may = is_shm(&plan) || plan.backing == Backing::Thp;
            assert!(may || !privileged, "{format:?}: {text}");
        }
    }
    let plan = samples::shm()?;
    let limits = settings(&plan, Format::Limits)?;
    assert_eq!(limits, [format!("@hugepages - memlock {}", 632 * 2048)]);
    assert!(settings(&plan, Format::Systemd)?.contains(&"AmbientCapabilities=CAP_IPC_LOCK".to_owned()));
    assert!(render(&plan, Format::Docker, None)?.contains(" --cap-add=IPC_LOCK "));
    Ok(())
}

#[test]
fn unneeded_formats_are_refused_with_the_reason() -> TestResult {
    for (plan, format, says) in [
        (samples::hugetlb()?, Format::Limits, "no limit of limits.d applies"),
        (samples::thp()?, Format::Limits, "no limit: nothing to write"),
        (samples::thp()?, Format::Sysctl, "use --format tmpfiles, tuned or kernel"),
        (samples::base()?, Format::Sysctl, "no pool: nothing"),
        (samples::base()?, Format::Systemd, "nothing to write"),
        (samples::base()?, Format::Kernel, "nothing to write"),
        (samples::base()?, Format::Tuned, "nothing to write"),
        (samples::base()?, Format::Tmpfiles, "nothing to write"),
    ] {
        let said = render(&plan, format, None).map_err(|error| error.to_string());
        assert!(said.as_ref().is_err_and(|said| said.contains(says)), "{format:?}: {said:?}");
    }
    Ok(())
}

#[test]
fn a_pod_takes_the_pages_of_one_instance() -> TestResult {
    let text = render(&samples::hugetlb()?, Format::Kubernetes, None)?;
    assert_eq!(text.matches("hugepages-2Mi: \"1264Mi\"").count(), 2, "request and limit: {text}");
    // 1 MiB of card table, and the margin.
    assert_eq!(text.matches("memory: \"513Mi\"").count(), 2, "{text}");
    assert!(text.contains("kind: \"Deployment\"") && text.contains("replicas: 2\n"), "{text}");
    assert!(text.contains("# Planned with java 17.0.15 (G1)."), "{text}");
    let text = render(&samples::nodes()?, Format::Kubernetes, None)?;
    assert_eq!(text.matches("hugepages-1Gi: \"4Gi\"").count(), 2, "of both nodes: {text}");
    assert_eq!(text.matches("hugepages-2Mi: \"240Mi\"").count(), 2, "{text}");
    let text = render(&samples::thp()?, Format::Kubernetes, None)?;
    assert!(text.contains("memory: \"1536Mi\"") && !text.contains("hugepages-"), "heap and margin: {text}");
    Ok(())
}

#[test]
fn options_take_the_place_of_those_of_the_line() -> TestResult {
    let mut plan = samples::hugetlb()?;
    plan.command.insert(2, "-XX:-UseLargePages".to_owned());
    let last = |plan: &Plan| render(plan, Format::Docker, None).map(|t| t.lines().last().map(str::to_owned));
    let line = "docker run --rm --entrypoint=java IMAGE -XX:+UseLargePages -XX:InitialHeapSize=1073741824 -XX:+UseG1GC -Xmx1g -jar server.jar";
    assert_eq!(last(&plan)?.as_deref(), Some(line));
    let mut plan = samples::opaque()?;
    let line = "docker run --rm --env 'JDK_JAVA_OPTIONS=-XX:+UseLargePages -XX:MaxHeapSize=1073741824 -XX:InitialHeapSize=1073741824' --entrypoint=java IMAGE @options Main";
    assert_eq!(last(&plan)?.as_deref(), Some(line));
    plan.java.as_mut().ok_or("a JVM was expected")?.version = "1.8.0_452".to_owned();
    assert!(last(&plan)?.is_some_and(|line| line.contains("JAVA_TOOL_OPTIONS=")));
    Ok(())
}

/// Parses a value according to systemd.syntax(7) and systemd.unit(5).
fn systemd_reads(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = text.strip_prefix('"')?.strip_suffix('"')?.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '"' | '\n' => return None,
            '%' => chars.next().filter(|c| *c == '%')?,
            '\\' => match chars.next()? {
                'n' => '\n',
                't' => '\t',
                'x' => {
                    let digits: String = chars.by_ref().take(2).collect();
                    char::from(u8::from_str_radix(&digits, 16).ok()?)
                }
                'U' => {
                    let digits: String = chars.by_ref().take(8).collect();
                    char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?
                }
                c @ ('"' | '\\') => c,
                _ => return None,
            },
            c => c,
        });
    }
    Some(out)
}

/// A line of YAML with the characters that JSON cannot write as `\U`.
fn with_surrogates(line: &str) -> String {
    let parts: Vec<&str> = line.split("\\\\").collect();
    let read = |part: &&str| {
        let mut pieces = part.split("\\U");
        let mut text = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let number = u32::from_str_radix(&piece[..8], 16).ok().and_then(char::from_u32);
            text.extend(number);
            text.push_str(&piece[8..]);
        }
        text
    };
    parts.iter().map(read).collect::<Vec<_>>().join("\\\\")
}

/// Any text that can be an argument, with characters that are special to some tool more often.
fn word() -> impl Strategy<Value = String> {
    "([^\\x00]|[\"'\\\\$%#\n\r\t `{}:-]|\u{85}|\u{2028}|\u{feff}){0,12}"
}

proptest! {
    #[test]
    fn systemd_reads_what_was_meant(value in word()) {
        let text = quote::systemd_assignment("A", &value);
        prop_assert!(text.chars().all(is_printable));
        prop_assert_eq!(systemd_reads(&text), Some(format!("A={value}")));
    }

    #[test]
    fn every_string_of_yaml_is_one_of_json(words in prop::collection::vec(word(), 1..4)) {
        let text = yaml::document(&serde_json::json!({"command": words, "none": []}));
        let lines: Vec<&str> = text.split('\n').collect();
        prop_assert_eq!(lines.len(), words.len() + 3, "{}", text);
        for (line, word) in lines[1..].iter().zip(&words) {
            prop_assert!(line.chars().all(is_printable));
            let line = with_surrogates(line);
            let read: Option<Value> = line.strip_prefix("  - ").and_then(|j| serde_json::from_str(j).ok());
            prop_assert_eq!(read, Some(Value::from(word.as_str())));
        }
    }

    #[test]
    fn nothing_leaves_its_comment(words in prop::collection::vec(word(), 0..4)) {
        let mut plan = samples::hugetlb().map_err(|e| TestCaseError::fail(e.to_string()))?;
        plan.command = words;
        for format in [Format::Sysctl, Format::Tmpfiles, Format::Kernel] {
            let lines = settings(&plan, format).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(lines.len(), 1, "{:?}", lines);
        }
        for format in Format::value_variants() {
            if let Ok(text) = render(&plan, *format, None) {
                prop_assert!(text.chars().all(|c| c == '\n' || is_printable(c)), "{:?}", text);
            }
        }
    }
}
