//! Captured trees and files of others that root names: links out of them, pipes, devices, and files without end.

use std::{
    error::Error,
    fs::{self, File},
    io::Write,
    os::unix::{fs::symlink, net::UnixListener, process::ExitStatusExt},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    TestResult, Trial, attack,
    bounded::{AT_ONCE, CAGE, caged, ends_by, in_group, within},
    counters::IN_PLACE,
    hostile::Place,
    memory_group::Group,
    needs::Need::MemoryGroup,
    reading::{each, orderly},
    start::{Running, hugewise},
};

pub fn trials() -> Vec<Trial> {
    vec![
        attack("trees: pipes, devices and files without end", &[MemoryGroup], entries).representing(false),
        attack("trees: links in a circle, and folders that are links", &[MemoryGroup], circles)
            .representing(false),
        attack("trees: logs and recordings without end", &[MemoryGroup], logs).representing(false),
        attack("trees: the wait for a pipe without writer ends at an interrupt", &[], pipes)
            .representing(false),
    ]
}

/// A captured tree of this machine.
fn captured(place: &Place) -> Result<String, Box<dyn Error>> {
    let tree = place.text("tree");
    within(AT_ONCE, &["check", "--capture", &tree])?;
    Ok(tree)
}

/// The commands that read a tree.
fn reading(tree: &str) -> [Vec<&str>; 3] {
    [
        vec!["check", "--root", tree],
        vec!["plan", "--root", tree, "--backing", "hugetlb", "--", "java", "-Xmx64m", "Main"],
        vec!["explain", "--root", tree, "--text", "Failed to reserve large pages memory"],
    ]
}

fn read_in_cage(commands: &[Vec<&str>]) -> TestResult {
    each(commands.iter().map(|arguments| caged(CAGE, AT_ONCE, arguments).and_then(orderly)))
}

/// Files that the commands read.
const FILES: [&str; 5] = [
    "proc/meminfo",
    "proc/self/status",
    "proc/self/mountinfo",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
];

fn entries() -> TestResult {
    let place = Place::new()?;
    let tree = captured(&place)?;
    let devices = [("zero", ["c", "1", "5"]), ("kmsg", ["c", "1", "11"]), ("console", ["c", "5", "1"])];
    each(FILES.iter().map(|file| {
        let path = Path::new(&tree).join(file);
        let kept = fs::read(&path).unwrap_or_default();
        let replaced = |what: &str, make: &dyn Fn(&Path) -> TestResult| {
            let _ = fs::remove_file(&path);
            make(&path)?;
            let read = read_in_cage(&reading(&tree)[..1])
                .map_err(|error| format!("{file} is a {what}: {error}").into());
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
            read
        };
        let made = devices.iter().map(|(name, node)| {
            replaced(name, &|path| {
                let made = Command::new("mknod").arg(path).args(node).status()?;
                if made.success() { Ok(()) } else { Err("mknod failed".into()) }
            })
        });
        let socket = replaced("socket", &|path| {
            UnixListener::bind(path)?;
            Ok(())
        });
        let outcome =
            each(IN_PLACE.iter().map(|(what, make)| replaced(what, make)).chain(made).chain([socket]));
        fs::write(&path, kept)?;
        outcome
    }))
}

fn circles() -> TestResult {
    let place = Place::new()?;
    let tree = captured(&place)?;
    let at = |path: &str| Path::new(&tree).join(path);
    for (path, target) in [("loop-a", "loop-b"), ("loop-b", "loop-a/x"), ("up", "../../../../../../..")] {
        symlink(target, at(path))?;
    }
    let mut deep = at("deep");
    for _ in 0..200 {
        fs::create_dir(&deep)?;
        deep.push("d");
    }
    symlink("/", &deep)?;
    for (folder, target) in [
        ("proc", "up/proc"),
        ("proc", "/proc"),
        ("sys/kernel/mm", "/loop-a"),
        ("sys/kernel/mm", "../../../../../../../sys/kernel/mm"),
        ("sys/fs/cgroup", "/"),
        ("sys/devices/system/node", "/deep"),
    ] {
        let (path, kept) = (at(folder), at("kept"));
        let moved = fs::rename(&path, &kept).is_ok();
        fs::create_dir_all(path.parent().ok_or("no parent")?)?;
        symlink(target, &path)?;
        read_in_cage(&reading(&tree)).map_err(|error| format!("{folder} -> {target}: {error}"))?;
        let said = within(AT_ONCE, &["check", "--json", "--root", &tree])?;
        let own = fs::read_to_string("/proc/meminfo")?;
        let own = own.split_whitespace().nth(1).ok_or("no total")?.parse::<u64>()? * 1024;
        if folder == "proc" && said.stdout.contains(&own.to_string()) {
            return Err(format!("{folder} -> {target}: it has the memory of this machine").into());
        }
        fs::remove_file(&path)?;
        if moved {
            fs::rename(&kept, &path)?;
        }
    }
    Ok(())
}

/// A compressed file of a size that does not fit into memory.
fn compressed(file: &Path, line: &str) -> TestResult {
    let mut packing =
        Command::new("gzip").arg("-1").stdin(Stdio::piped()).stdout(File::create(file)?).spawn()?;
    let mut input = packing.stdin.take().ok_or("no input")?;
    input.write_all(line.as_bytes())?;
    let zeros = vec![b'x'; 1 << 20];
    for _ in 0..1536 {
        input.write_all(&zeros)?;
    }
    drop(input);
    if packing.wait()?.success() { Ok(()) } else { Err("gzip failed".into()) }
}

fn logs() -> TestResult {
    let place = Place::new()?;
    let (sparse, packed) = (place.text("sparse"), place.path("packed"));
    File::create(&sparse)?.set_len(1 << 40)?;
    compressed(&packed, "{\"schema\": \"hugewise.recording/2\", \"name\": \"")?;
    let packed = packed.display().to_string();
    each(["/dev/zero", &sparse, &packed].iter().flat_map(|file| {
        [&["gclog", file][..], &["explain", file], &["report", file]].map(|arguments| {
            // A log of 1 TiB may take long, but no more memory than fits, and an interrupt ends it.
            let group = Group::with_limit(CAGE)?;
            let running = Running::start(&mut in_group(&group, &hugewise(arguments)))?;
            let ended = ends_by("INT", running, Duration::from_secs(8))?;
            match ended.status.signal() {
                Some(9) => Err(format!("{arguments:?} was killed for lack of memory").into()),
                _ => Ok(()),
            }
        })
    }))
}

fn pipes() -> TestResult {
    let place = Place::new()?;
    let pipe = place.text("pipe");
    Command::new("mkfifo").arg(&pipe).status()?;
    each(
        [&["gclog", &pipe][..], &["explain", &pipe], &["report", &pipe], &["apply", "--plan", &pipe]]
            .map(|arguments| {
                let running = Running::start(&mut hugewise(arguments))?;
                ends_by("INT", running, Duration::from_secs(1)).map(drop)
            })
            .into_iter(),
    )
}
