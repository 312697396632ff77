//! Files of a process that root reads: its performance counters, its argument files, its library, its socket.

use std::{
    error::Error,
    fs::{self, File},
    os::unix::{
        fs::{FileTypeExt, PermissionsExt, lchown, symlink},
        net::UnixListener,
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    TestResult, Trial, attack,
    bounded::{AT_ONCE, CAGE, caged, ends_by, within},
    hostile::{Place, USER},
    needs::Need::{MemoryGroup, Thp},
    reading::{SECRET, each, observing, orderly},
    start::{Running, hugewise},
};

pub fn trials() -> Vec<Trial> {
    vec![
        attack("counters: links, pipes and files without end", &[MemoryGroup, Thp], counters)
            .representing(false),
        attack("files: argument files of another user's command line", &[MemoryGroup], argument_files)
            .representing(false),
        attack("files: a library with endless tables", &[MemoryGroup, Thp], library).representing(false),
        attack("files: an attach socket that is another's", &[], another_socket),
        attack("files: mappings with names of 4 KiB", &[MemoryGroup, Thp], mappings).representing(false),
    ]
}

/// The folder of performance counters of a process, in /tmp. Removed when dropped.
struct Counters(PathBuf);

impl Counters {
    fn of_user() -> Result<Counters, Box<dyn Error>> {
        let folder = PathBuf::from(format!("/tmp/hsperfdata_hostile-{}", std::process::id()));
        fs::create_dir(&folder)?;
        lchown(&folder, Some(USER), Some(USER))?;
        Ok(Counters(folder))
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

type Make = fn(&Path) -> TestResult;

/// What another user puts in the place of a file.
pub const IN_PLACE: [(&str, Make); 6] = [
    ("link to pagemap", |path| Ok(symlink("/proc/self/pagemap", path)?)),
    ("link to kmsg", |path| Ok(symlink("/proc/kmsg", path)?)),
    ("link to zero", |path| Ok(symlink("/dev/zero", path)?)),
    ("pipe", |path| {
        let made = Command::new("mkfifo").args(["-m", "666"]).arg(path).status()?;
        if made.success() { Ok(()) } else { Err("mkfifo failed".into()) }
    }),
    ("file of 1 TiB", |path| Ok(File::create(path)?.set_len(1 << 40)?)),
    ("folder", |path| Ok(fs::create_dir(path)?)),
];

fn counters() -> TestResult {
    let place = Place::new()?;
    // With memory to move, so that it is compared.
    let hostile = place.hostile("memory", &["64"])?;
    let pid = hostile.pid();
    let live = ["compare", "--live", &pid, "--turn", "1", "--max-time"];
    each(IN_PLACE.iter().map(|(what, make)| {
        let folder = Counters::of_user()?;
        let file = folder.0.join(&pid);
        make(&file)?;
        lchown(&file, Some(USER), Some(USER))?;
        let said = |error: Box<dyn Error>| format!("{what}: {error}");
        caged(CAGE, AT_ONCE * 2, &[&live[..], &["5"]].concat()).and_then(orderly).map_err(said)?;
        let running = Running::start(&mut hugewise(&[&live[..], &["60"]].concat()))?;
        ends_by("INT", running, Duration::from_secs(2)).map_err(said)?;
        Ok(())
    }))
}

fn argument_files() -> TestResult {
    let place = Place::new()?;
    let (secret, pipe) = (place.text("secret"), place.text("pipe"));
    fs::write(&secret, format!("-Xmx64m -D{SECRET} Main"))?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    Command::new("mkfifo").arg(&pipe).status()?;
    assert!(fs::metadata(&pipe)?.file_type().is_fifo());
    each([&secret, "/dev/zero", &pipe, "/proc/kmsg", "/proc/self/pagemap"].iter().map(|file| {
        let words = [
            &format!("@{file}")[..],
            &format!("-XX:Flags={file}"),
            &format!("-XX:VMOptionsFile={file}"),
            "Main",
        ];
        let hostile = place.jvm_with("closed", &words)?;
        let (pid, recording) = (hostile.pid(), place.text("recording"));
        each(observing(&pid, &recording).iter().map(|arguments| {
            let ended = caged(CAGE, AT_ONCE, arguments)?;
            match format!("{}{}", ended.stdout, ended.stderr).lines().find(|line| line.contains(SECRET)) {
                Some(line) => Err(format!("{arguments:?} shows a file of root: {line}").into()),
                None => orderly(ended),
            }
        }))
    }))
}

fn library() -> TestResult {
    let place = Place::new()?;
    let hostile = place.jvm("tables")?;
    let (pid, recording) = (hostile.pid(), place.text("recording"));
    let commands = observing(&pid, &recording);
    each(commands.iter().map(|arguments| caged(CAGE, AT_ONCE * 2, arguments).and_then(orderly)))
}

fn another_socket() -> TestResult {
    let place = Place::new()?;
    let hostile = place.jvm("closed")?;
    // Root's own socket, which answers root only.
    let socket = place.path("socket");
    let listener = UnixListener::bind(&socket)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
    assert!(fs::metadata(&socket)?.file_type().is_socket());
    let link = format!("/tmp/.java_pid{}", hostile.pid);
    let made = Command::new("ln").args(["-s"]).arg(&socket).arg(&link).uid(USER).gid(USER).status()?;
    assert!(made.success());
    let (pid, recording) = (hostile.pid(), place.text("recording"));
    for arguments in
        [&["inspect", "--attach", &pid][..], &["record", "--seconds", "1", "-o", &recording, &pid]]
    {
        orderly(within(AT_ONCE * 2, arguments)?)?;
    }
    match listener.accept() {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
        accepted => Err(format!("root was led to another socket: {accepted:?}").into()),
    }
}

fn mappings() -> TestResult {
    let place = Place::new()?;
    let folder = place.of_user()?.display().to_string();
    let hostile = place.hostile("mappings", &["65000", &folder])?;
    let (pid, recording) = (hostile.pid(), place.text("recording"));
    let commands = observing(&pid, &recording);
    let full = ["inspect", "--full", &pid];
    let all = commands.iter().map(|command| &command[..]).chain([&full[..]]);
    each(all.map(|arguments| caged(CAGE, AT_ONCE * 3, arguments).and_then(orderly)))
}
