//! The built `hugewise check`: on captured trees, on this machine, and against other programs.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use hugewise_linux::testing::trials::skip_part;
use serde_json::Value;
use tempfile::TempDir;

const HUGEWISE: &str = env!("CARGO_BIN_EXE_hugewise");

/// Runs `hugewise check` in an environment in which a captured tree gives the same result.
fn check(args: &[&str]) -> Output {
    let mut command = Command::new(HUGEWISE);
    command.arg("check").args(args).env("PATH", "/usr/bin:/bin").env_remove("JAVA_HOME");
    command.output().expect("hugewise runs")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A tree with these files, readable by everyone.
fn tree(files: &[(&str, &[u8])]) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
    for (path, content) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, content).expect("a file");
    }
    dir
}

fn path(dir: &TempDir) -> &str {
    dir.path().to_str().expect("a plain name")
}

const MEMINFO: (&str, &[u8]) = (
    "proc/meminfo",
    b"MemTotal: 16777216 kB\nMemFree: 8388608 kB\nHugePages_Total: 4\nHugePages_Free: 4\n\
      HugePages_Rsvd: 0\nHugePages_Surp: 0\nHugepagesize: 2048 kB\n",
);

/// No message of the C library or of a shell, and the same text.
#[test]
fn a_locale_that_is_not_installed_changes_nothing() -> Result<(), Box<dyn std::error::Error>> {
    let machine = tempfile::tempdir()?;
    let check = |locale: &str| {
        Command::new(env!("CARGO_BIN_EXE_hugewise"))
            .args(["check", "--root"])
            .arg(machine.path())
            .envs([("LC_ALL", locale), ("LANG", locale), ("LANGUAGE", locale)])
            .output()
    };
    let (plain, other) = (check("C.UTF-8")?, check("xx_YY.UTF-8")?);
    assert_eq!((other.stdout, other.stderr), (plain.stdout, plain.stderr));
    assert_eq!(other.status, plain.status);
    Ok(())
}

#[test]
fn a_limit_that_kills_is_a_negative_verdict() {
    let dir = tree(&[
        MEMINFO,
        ("proc/self/cgroup", b"0::/\n"),
        ("proc/self/mountinfo", b"1 1 0:1 / /cg rw - cgroup2 none rw\n"),
        ("cg/cgroup.procs", b""),
        ("cg/hugetlb.2MB.max", b"0\n"),
    ]);
    let output = check(&["--root", path(&dir), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    assert_eq!(report["schema"], "hugewise.check/2");
    assert_eq!(report["findings"][0]["id"], "cgroup-hugetlb-limit");
    assert_eq!(report["findings"][0]["evidence"][0]["source"], "/cg/hugetlb.2MB.max");
}

#[test]
fn without_sys_the_default_pool_is_still_reported() {
    let dir = tree(&[MEMINFO]);
    let output = check(&["--root", path(&dir)]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(shown.contains("2MiB (default)            4        4"), "{shown}");
    assert!(shown.contains("no-sys") && shown.contains("UNKNOWN"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
}

#[test]
fn what_is_no_machine_is_refused() {
    let empty = tree(&[]);
    for (root, says) in [("/nowhere", "no such folder"), (path(&empty), "nothing in")] {
        let output = check(&["--root", root]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
}

#[test]
fn no_tree_makes_it_panic_or_hang() {
    let noise: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let dir = tree(&[
        MEMINFO,
        ("proc/self/cgroup", &noise),
        ("proc/self/mountinfo", &noise),
        ("proc/self/status", &noise),
        ("proc/self/limits", b"Max locked memory \xff\xff\n"),
        ("proc/sys/kernel/osrelease", b"6.1\x1b[2J\n"),
        ("proc/buddyinfo", b"Node 0, zone Normal 18446744073709551615 18446744073709551615\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", b"[\x1b[31malways] never"),
        ("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", b"3"),
        ("sys/kernel/mm/hugepages/hugepages-18446744073709551615kB/nr_hugepages", b"1"),
        ("sys/kernel/mm/hugepages/hugepages-0kB/nr_hugepages", b"1"),
        ("opt/jdk/bin/java", b""),
        ("opt/jdk/release", &noise),
    ]);
    let name = std::ffi::OsStr::from_bytes(b"sys/kernel/mm/transparent_hugepage/hugepages-\xff");
    fs::create_dir_all(dir.path().join(name)).expect("a folder");
    symlink("loop", dir.path().join("opt/loop")).expect("a link");
    symlink("/dev/zero", dir.path().join("proc/kpageflags")).expect("a link");
    let fifo = Command::new("mkfifo").arg(dir.path().join("proc/self/auxv")).status();
    assert!(fifo.is_ok_and(|status| status.success()));
    for args in [&["--json"][..], &[]] {
        let output = check(&[&["--root", path(&dir)], args].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(!output.stdout.contains(&0x1b));
    }
}

#[test]
fn a_capture_goes_into_an_empty_folder_only() {
    let full = tree(&[("precious", b"x")]);
    let output = check(&["--capture", path(&full)]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("not empty"), "{}", text(&output.stderr));
    assert_eq!(fs::read_dir(full.path()).map(|entries| entries.count()).ok(), Some(1));
}

/// Removes values that a captured tree cannot reproduce: reasons, which name the folder, and page flags.
fn what_files_hold(mut facts: Value) -> Value {
    fn forget_reasons(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::Object(reasons)) = fields.get_mut("unknown") {
                    reasons.values_mut().for_each(|reason| *reason = Value::Null);
                }
                fields.values_mut().for_each(forget_reasons);
            }
            Value::Array(items) => items.iter_mut().for_each(forget_reasons),
            _ => {}
        }
    }
    if let Some(sizes) = facts["contiguity"]["sizes"].as_array_mut() {
        sizes.retain(|size| size["blocks"].is_null() && size["unknown"]["blocks"].is_null());
    }
    forget_reasons(&mut facts);
    facts
}

#[test]
fn a_captured_tree_gives_the_same_facts() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let to = dir.path().join("tree");
    let to = to.to_str().expect("a plain name");
    let (live, captured) = (check(&["--json", "--capture", to]), check(&["--json", "--root", to]));
    let (live, captured) = (json(&live), json(&captured));
    assert_eq!(what_files_hold(live["facts"].clone()), what_files_hold(captured["facts"].clone()));
    assert_eq!(live["jdks"], captured["jdks"]);
}

#[test]
fn it_works_without_root() {
    let dir = tree(&[]);
    let copy = dir.path().join("hugewise");
    // With cp: a copy that this process wrote could not be run while a child process of another test,
    // forked during that time, holds it open for writing ("Text file busy").
    let copied = Command::new("cp").arg(HUGEWISE).arg(&copy).status().expect("a copy that everyone may run");
    assert!(copied.success());
    let mut command = Command::new(copy);
    command.args(["check", "--json"]);
    if fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0) {
        command.uid(65534).gid(65534);
    }
    let report = json(&command.output().expect("hugewise runs"));
    assert!(report["facts"]["meminfo"]["total_bytes"].is_u64());
    assert_ne!(report["facts"]["limits"]["uid"], 0);
    let frames = report["facts"]["contiguity"]["sizes"].as_array().and_then(|sizes| sizes.last().cloned());
    if let Some(frames) = frames.filter(|size| !size["blocks"].is_null()) {
        let reason = frames["unknown"]["at_once"].as_str().unwrap_or_default();
        assert!(reason.contains("CAP_SYS_ADMIN"), "{reason}");
        assert!(frames["at_most"].is_u64(), "the upper bound is known");
    }
}

/// Output of a program; `None` if it is not installed.
fn oracle(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output();
    if output.is_err() {
        skip_part(&format!("check: compared with {program}"), &format!("{program} is not installed"));
    }
    Some(text(&output.ok()?.stdout))
}

/// The pools of this machine, without those of single nodes.
fn pools() -> Vec<Value> {
    let report = json(&check(&["--json"]));
    let pools = report["facts"]["pools"].as_array().cloned().unwrap_or_default();
    pools.into_iter().filter(|pool| pool["node"].is_null()).collect()
}

#[test]
fn pools_agree_with_libhugetlbfs() {
    if !Path::new("/sys/kernel/mm/hugepages").exists() {
        return;
    }
    // Size, minimum, current, maximum. AliasedMapping, because other processes may change pools during the
    // test.
    let numbers =
        |line: &str| -> Vec<u64> { line.split_whitespace().map_while(|n| n.parse().ok()).collect() };
    let mut compared = Vec::new();
    for _ in 0..5 {
        let Some(list) = oracle("hugeadm", &["--pool-list"]) else { return };
        let theirs: Vec<Vec<u64>> = list.lines().skip(1).map(numbers).collect();
        let as_they_say = |pool: &Value| {
            let of = |name: &str| pool[name].as_u64().expect("a number");
            let minimum = of("total") - of("surplus");
            vec![of("page_size_bytes"), minimum, of("total"), minimum + of("overcommit")]
        };
        let ours: Vec<Vec<u64>> = pools().iter().map(as_they_say).collect();
        if ours == theirs {
            return;
        }
        compared.push((ours, theirs));
    }
    assert!(compared.is_empty(), "{compared:?}");
}

#[test]
fn sizes_agree_with_libhugetlbfs() {
    let Some(list) = oracle("pagesize", &["-H", "-a"]) else { return };
    let theirs: BTreeSet<u64> = list.lines().filter_map(|line| line.trim().parse().ok()).collect();
    let ours: BTreeSet<u64> = pools().iter().filter_map(|pool| pool["page_size_bytes"].as_u64()).collect();
    assert_eq!(ours, theirs);
}

/// A capture with a process has what explains its memory, and none of its secrets: `inspect` and `explain` answer from it.
#[test]
fn a_capture_takes_a_process_along_without_its_secrets() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let (tree, log) = (dir.path().join("tree"), dir.path().join("app.log"));
    let mut program = Command::new("sh")
        .args(["-c", "echo 'started with password=hunter2'; read line", "app", "--token", "hunter2"])
        .env("MY_PASSWORD", "hunter2")
        .env("ES_JAVA_OPTS", "-Xmx1g -Dkey.password=hunter2")
        .stdin(Stdio::piped())
        .stdout(fs::File::create(&log)?)
        .spawn()?;
    let pid = program.id().to_string();
    for _ in 0..600 {
        if !fs::read(&log)?.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    let folder = tree.display().to_string();
    let run = |args: &[&str]| Command::new(HUGEWISE).args(args).output();
    let ran = run(&["check", "--capture", &folder, "--pid", &pid]);
    let inspected = run(&["inspect", "--root", &folder, &pid]);
    let planned = run(&["plan", "--root", &folder, "--pid", &pid]);
    program.kill()?;
    program.wait()?;
    let (ran, inspected, planned) = (ran?, inspected?, planned?);
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.code() < Some(2) && said.contains("files copied"), "{said}");
    let all = String::from_utf8_lossy(&inspected.stdout).into_owned();
    assert_eq!(inspected.status.code(), Some(0), "{all} {}", String::from_utf8_lossy(&inspected.stderr));
    assert!(all.contains("(sh)") || all.contains("sh "), "{all}");

    let proc = tree.join("proc").join(&pid);
    for name in ["smaps", "limits", "cgroup", "cmdline", "environ", "status"] {
        assert!(proc.join(name).is_file(), "{name}");
    }
    assert_eq!(fs::read(tree.join("proc/self/cgroup"))?, fs::read(proc.join("cgroup"))?);
    let environment = fs::read_to_string(proc.join("environ"))?;
    assert!(environment.contains("ES_JAVA_OPTS=-Xmx1g -Dkey.password=REMOVED"), "{environment}");
    let of_log = tree.join(log.strip_prefix("/")?);
    assert_eq!(fs::read_to_string(of_log)?, "started with password=REMOVED\n");
    assert!(fs::read_to_string(tree.join("removed.txt"))?.contains("environment: MY_PASSWORD"));
    // The command line of a capture is started only if the user gives it.
    let refused = String::from_utf8_lossy(&planned.stderr).into_owned();
    assert_eq!(planned.status.code(), Some(2), "{refused}");
    assert!(refused.contains("app --token REMOVED"), "{refused}");
    let secret = Command::new("grep").args(["-r", "hunter2", &folder]).output()?;
    assert_eq!(String::from_utf8_lossy(&secret.stdout), "", "no secret in any file");
    assert_eq!(fs::metadata(&tree)?.permissions().mode() & 0o777, 0o700);
    Ok(())
}
