//! The formats of a plan, checked by the tools that read them.
//!
//! Tests that cannot run are skipped and listed with the reason. For `kubernetes` set
//! `HUGEWISE_KUBERNETES_VALIDATE` to a program that takes manifests as arguments and fails for an
//! invalid one (kubernetes-validate, kubeconform, or the API server's validation).

#[allow(dead_code, unused_imports)]
#[path = "../src/commands/plan/formats/mod.rs"]
mod formats;

use std::{
    env,
    error::Error,
    fs,
    path::Path,
    process::{Command, ExitCode, Output},
    thread,
    time::Duration,
};

use formats::{Format, render, samples};
use hugewise_changes::journal::{Journal, JournalError, STATE_DIR};
use hugewise_linux::{
    root::Root,
    settings::Setting,
    testing::trials::{self, TestResult, Trial},
    units::{PageSize, Pages},
};
use hugewise_plan::plan::Plan;
use libtest_mimic::Arguments;

const VALIDATE: &str = "HUGEWISE_KUBERNETES_VALIDATE";

/// Words with characters that are special to one of the tools.
const HOSTILE: [&str; 8] = [
    "-Dquotes=\"a\" 'b'",
    "-Dexpanded=$HOME $(HOME) ${HOME} `id` %n %%",
    "-Dlines=a\nb\r\nc\\\n  d",
    "-Dyaml=: - # {a: [b]} & * ! | > @ \u{85}\u{2028}\u{feff}",
    "-Dunicode=ü 漢 \u{1f600} \u{7f}\u{1b}[0m\u{9b}31m \u{202e}\u{2066}\u{200b}\u{e0041}",
    "-Dbackslash=\\x41 \\\\ \\",
    "",
    "#no comment",
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let python = missing("python3", &["-c", "import yaml"]);
    let trials = vec![
        trial("sysctl: loaded by sysctl", pools_or("sysctl"), || loaded(Format::Sysctl, "sysctl", "-p")),
        trial("tmpfiles: loaded by systemd-tmpfiles", pools_or("systemd-tmpfiles"), || {
            loaded(Format::Tmpfiles, "systemd-tmpfiles", "--create")
        }),
        trial("systemd: verified", missing("systemd-analyze", &["--version"]), systemd_verifies),
        trial("kernel: a shell reads GRUB's line", missing("sh", &["-c", "true"]), grub_reads),
        trial("tuned: an INI file", missing("python3", &["-c", "pass"]), python_reads_ini),
        trial("kubernetes: words come back", python.clone(), || words_come_back(Format::Kubernetes)),
        trial("kubernetes: valid", validator_missing(), kubernetes_accepts),
        trial("docker: words come back", missing("bash", &["-c", "true"]), shell_reads),
        trial("compose: words come back", python, || words_come_back(Format::Compose)),
        trial("compose: valid", missing("docker", &["compose", "version"]), compose_accepts),
    ];
    trials::run(&arguments, trials)
}

fn trial(name: &str, reason: Option<String>, test: impl FnOnce() -> TestResult + 'static) -> Trial {
    Trial::new(name, reason, test)
}

/// The reason why a program cannot be used; `None` if it can.
fn missing(program: &str, arguments: &[&str]) -> Option<String> {
    let works = Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success());
    (!works).then(|| format!("{program} {} does not work", arguments.join(" ")))
}

fn validator_missing() -> Option<String> {
    env::var_os(VALIDATE).is_none().then(|| format!("{VALIDATE} names no program"))
}

/// The reason why pools cannot be changed with this program; `None` if they can.
fn pools_or(program: &str) -> Option<String> {
    let root = Root::live();
    let writable = default_size(&root).is_ok_and(|size| {
        let file = root.path(Setting::Pool { page_size: size, node: None }.path());
        fs::OpenOptions::new().write(true).open(file).is_ok()
    });
    if writable { missing(program, &["--version"]) } else { Some("needs root, and a pool".to_owned()) }
}

fn default_size(root: &Root) -> Result<PageSize, Box<dyn Error>> {
    let meminfo = fs::read_to_string(root.path("proc/meminfo"))?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("Hugepagesize:")).ok_or("no huge pages")?;
    Ok(line.trim().parse()?)
}

/// Opens the journal; waits for other hugewise processes up to ten minutes.
fn open(root: &Root) -> Result<Journal, JournalError> {
    for _ in 0..600 {
        match Journal::open(root, Path::new(STATE_DIR), "tests of formats") {
            Err(JournalError::Busy(_) | JournalError::Unfinished(_)) => thread::sleep(Duration::from_secs(1)),
            opened => return opened,
        }
    }
    Journal::open(root, Path::new(STATE_DIR), "tests of formats")
}

/// The tool sets the pool as the file says. The test sets it back, because a restore leaves what others have set.
fn loaded(format: Format, program: &str, option: &str) -> TestResult {
    let root = Root::live();
    let size = default_size(&root)?;
    let setting = Setting::Pool { page_size: size, node: None };
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("80-hugewise.conf");
    let mut journal = open(&root)?;
    let before: u64 = setting.read(&root)?.parse()?;
    // Written to the journal, so that it is restored.
    journal.set(setting, &before.to_string())?;
    let mut plan = samples::hugetlb()?;
    plan.command.extend(HOSTILE.map(str::to_owned));
    plan.regions.iter_mut().for_each(|region| region.page_size_bytes = size);
    plan.pools[0].page_size_bytes = size;
    (plan.pools[0].pages_in_pool, plan.pools[0].pages_to_add) = (Pages(before), Pages(3));
    fs::write(&file, render(&plan, format, None)?)?;
    let output = Command::new(program).arg(option).arg(&file).output();
    let after = setting.read(&root);
    fs::write("/proc/sys/vm/nr_hugepages", before.to_string())?;
    let restored = journal.close();
    let (output, after) = (output?, after?.parse::<u64>()?);
    succeeded(&output)?;
    assert_eq!(after, before + 3, "{}", reported(&output));
    assert!(restored.failed.is_empty(), "{restored:?}");
    assert_eq!(setting.read(&root)?, before.to_string());
    Ok(())
}

fn systemd_verifies() -> TestResult {
    let folder = tempfile::tempdir()?;
    let unit = folder.path().join("of-a-test.service");
    fs::write(&unit, "[Unit]\nDescription=Of a test\n[Service]\nExecStart=/bin/true\n")?;
    fs::create_dir(folder.path().join("of-a-test.service.d"))?;
    let reported_of = |drop_in: &str| {
        fs::write(folder.path().join("of-a-test.service.d/80-hugewise.conf"), drop_in)?;
        Command::new("systemd-analyze")
            .args(["--man=no", "verify"])
            .arg(&unit)
            .output()
            .map(|out| reported(&out))
    };
    for (name, mut plan) in hostile()? {
        plan.options.extend(HOSTILE.map(str::to_owned));
        // systemd-analyze only warns of a line that it cannot parse, and may warn of other units.
        let reported = reported_of(&render(&plan, Format::Systemd, None)?)?;
        assert!(!reported.contains("of-a-test.service"), "{name}: {reported}");
    }
    let reported = reported_of("[Service]\nEnvironment=\"A=%Z\n")?;
    assert!(
        reported.contains("80-hugewise.conf"),
        "systemd-analyze did not report an invalid line: {reported}"
    );
    Ok(())
}

/// The line for GRUB's file in the comments has the same parameters as the last line.
fn grub_reads() -> TestResult {
    for (name, plan) in samples::all()? {
        let Ok(text) = render(&plan, Format::Kernel, None) else { continue };
        let line = text.lines().last().unwrap_or_default();
        let grub =
            text.lines().find_map(|line| line.trim_start_matches(['#', ' ']).strip_prefix("GRUB_CMDLINE_"));
        let script = format!("GRUB_CMDLINE_LINUX=quiet\nGRUB_CMDLINE_{}\n", grub.unwrap_or_default());
        let output = Command::new("sh").arg("-c").arg(script + "echo \"$GRUB_CMDLINE_LINUX\"").output()?;
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("quiet {line}\n"), "{name}");
    }
    Ok(())
}

fn python_reads_ini() -> TestResult {
    let script = "import configparser, sys\n\
                  p = configparser.ConfigParser(delimiters='=', strict=True, interpolation=None)\n\
                  p.optionxform = str\n\
                  p.read_string(sys.argv[1])\n\
                  print(*p.sections())\n\
                  print(*(key + '=' + value for s in p.sections()[1:] for key, value in p.items(s)), sep='\\n')";
    for (name, mut plan) in samples::all()? {
        plan.command.extend(HOSTILE.map(str::to_owned));
        let Ok(text) = render(&plan, Format::Tuned, None) else { continue };
        let output = Command::new("python3").args(["-c", script, &text]).output()?;
        succeeded(&output)?;
        let read = String::from_utf8(output.stdout)?;
        assert!(read.starts_with("main "), "{name}: {read}");
        for line in read.lines().skip(1) {
            assert!(text.contains(&format!("\n{line}\n")), "{name}: {line}");
        }
    }
    Ok(())
}

/// Another YAML parser, of YAML 1.1, reads each word of the command line unchanged.
fn words_come_back(format: Format) -> TestResult {
    let script = "import json, sys, yaml\nprint(json.dumps(yaml.safe_load(sys.argv[1])))";
    for (name, plan) in hostile()? {
        let output = Command::new("python3").args(["-c", script, &render(&plan, format, None)?]).output()?;
        succeeded(&output)?;
        let read: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let container = match format {
            Format::Compose => &read["services"]["jvm"]["entrypoint"],
            _ if plan.instances > 1 => &read["spec"]["template"]["spec"]["containers"][0]["command"],
            _ => &read["spec"]["containers"][0]["command"],
        };
        let words: Vec<String> = serde_json::from_value(container.clone())?;
        // Both tools expand variables after a dollar sign, and replace two dollar signs by one.
        assert!(words.ends_with(&HOSTILE.map(|word| word.replace('$', "$$"))), "{name}: {words:#?}");
    }
    Ok(())
}

fn kubernetes_accepts() -> TestResult {
    let folder = tempfile::tempdir()?;
    let program = env::var_os(VALIDATE).unwrap_or_default();
    let validate = |name: &str, text: &str| {
        let file = folder.path().join(format!("{name}.yaml"));
        fs::write(&file, text)?;
        Command::new(&program).arg(&file).output()
    };
    for (name, plan) in samples::all()?.into_iter().chain(hostile()?) {
        succeeded(&validate(name, &render(&plan, Format::Kubernetes, None)?)?)?;
    }
    let broken =
        render(&samples::nodes()?, Format::Kubernetes, None)?.replace("  containers:", "  containers: 1 #");
    assert!(!validate("broken", &broken)?.status.success(), "the validator accepts an invalid manifest");
    Ok(())
}

fn shell_reads() -> TestResult {
    for (name, plan) in hostile()? {
        let script =
            format!("docker() {{ printf '%s\\0' \"$@\"; }}\n{}", render(&plan, Format::Docker, None)?);
        let output = Command::new("bash").arg("-c").arg(script).output()?;
        succeeded(&output)?;
        let read = String::from_utf8(output.stdout)?;
        let words: Vec<&str> = read.strip_suffix('\0').unwrap_or(&read).split('\0').collect();
        assert_eq!(words[..2], ["run", "--rm"], "{name}");
        assert!(words.ends_with(&HOSTILE), "{name}: {words:#?}");
    }
    Ok(())
}

fn compose_accepts() -> TestResult {
    let folder = tempfile::tempdir()?;
    for (name, plan) in hostile()? {
        let file = folder.path().join(format!("{name}.yaml"));
        fs::write(&file, render(&plan, Format::Compose, None)?)?;
        succeeded(&Command::new("docker").args(["compose", "config", "-q", "-f"]).arg(&file).output()?)?;
    }
    Ok(())
}

/// The samples, with words appended to their command lines that are hard to quote.
fn hostile() -> serde_json::Result<Vec<(&'static str, Plan)>> {
    let mut all = samples::all()?;
    all.iter_mut().for_each(|(_, plan)| plan.command.extend(HOSTILE.map(str::to_owned)));
    Ok(all)
}

fn succeeded(output: &Output) -> TestResult {
    if output.status.success() { Ok(()) } else { Err(reported(output).into()) }
}

fn reported(output: &Output) -> String {
    format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))
}
