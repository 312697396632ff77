//! Files, JDKs and processes that another user offers, and what a caller leaves to root's commands.

use std::{
    error::Error,
    fs,
    io::Write,
    os::unix::fs::{chown, symlink},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use hugewise_linux::sys::{self, wait_writable};

use crate::{
    TestResult, Trial, attack,
    bounded::{AT_ONCE, COMPARED, ended, ends_by, ends_within, within},
    hostile::{Hostile, Place, USER},
    needs::{
        Need::{Java, Namespaces, Thp},
        jdks,
    },
    reading::each,
    start::{Running, hugewise, program, wait_until},
};

/// A setting that a recording changes.
const DELAYS: &str = "/proc/sys/kernel/task_delayacct";
/// A character device without a driver: opening it is an error of its own.
const DEVICE: [&str; 3] = ["c", "241", "7"];

pub fn trials() -> Vec<Trial> {
    vec![
        attack("choices: a JDK of another user", &[Namespaces], foreign_jdk),
        attack("choices: a link to a device whose opening has an effect", &[], devices),
        attack("choices: the plan of a JVM in a container", &[Java, Namespaces], container)
            .representing(false),
        attack("choices: a pipe whose reader does not read", &[], unread).representing(false),
        attack("choices: signals that the caller blocks or ignores", &[Thp], signals).representing(false),
    ]
}

/// The script `java` of a JDK that is newer than all others writes the uid of its process to a file.
fn foreign_jdk() -> TestResult {
    let place = Place::new()?;
    let proof = place.of_user()?.join("proof");
    let jdk = place.of_user()?;
    fs::create_dir(jdk.join("bin"))?;
    let java = place.script("java", &format!("#!/bin/sh\nid -u >> {}\n", proof.display()))?;
    fs::rename(java, jdk.join("bin/java"))?;
    fs::write(jdk.join("release"), "JAVA_VERSION=\"99\"\nMODULES=\"java.base jdk.compiler\"\n")?;
    for file in ["bin", "bin/java", "release"] {
        chown(jdk.join(file), Some(USER), Some(USER))?;
    }
    let comparison = "compare -b base --rounds 1 --bytes 1000000";
    let pretouch = "bench pretouch --bytes 4MiB,8MiB -b base -t 1 -r 1 --jvm";
    each([comparison, pretouch].iter().map(|words| {
        // The JDK of the user is the only one, and not in PATH.
        let script = format!(
            "for folder in /opt /usr/lib/jvm /usr/local; do [ ! -d $folder ] || mount -t tmpfs none $folder; done \
             && cp -a {} /opt/app && PATH=/usr/sbin exec {} {words}",
            jdk.display(),
            program().display()
        );
        ends_within(COMPARED, Command::new("unshare").args(["-m", "sh", "-c", &script]))?;
        match fs::read_to_string(&proof) {
            Err(_) => Ok(()),
            Ok(users) => Err(format!("{words}: java of another user was started as uid {users}").into()),
        }
    }))
}

/// Opening a watchdog starts it. No command does so through a link of another user.
fn devices() -> TestResult {
    let place = Place::new()?;
    let (device, link) = (place.text("device"), place.of_user()?.join("link"));
    if !Command::new("mknod").arg(&device).args(DEVICE).status()?.success() {
        return Err("no device could be made".into());
    }
    symlink(&device, &link)?;
    let link = link.display().to_string();
    let argfile = format!("@{link}");
    let commands = [
        &["gclog", &link][..],
        &["report", &link],
        &["explain", &link],
        &["apply", "--plan", &link],
        &["plan", "--", "java", &argfile],
    ];
    each(commands.iter().map(|words| {
        let ended = within(AT_ONCE, words)?;
        // ENXIO is the answer of the place where a driver would be.
        match ended.stderr.contains("os error 6") || ended.status.success() {
            true => Err(format!("{words:?}: the device was opened: {ended:?}").into()),
            false => Ok(()),
        }
    }))
}

/// Root's command line in a container would have root start a program, with files of the container's names, outside.
fn container() -> TestResult {
    let place = Place::new()?;
    let classes = crate::compiling::compiled("Sleep", crate::waiting::SLEEP)?;
    let jdk = jdks().into_iter().next().ok_or("no JDK")?;
    let top = place.text("top");
    fs::create_dir(&top)?;
    let script = format!(
        "mount -t tmpfs none {top} && cd {top} && mkdir -p usr lib lib64 bin etc proc dev old classes tmp \
         && for folder in usr lib lib64 bin etc dev; do mount --rbind /$folder {top}/$folder; done \
         && mount -t proc none proc && cp {classes}/* classes && pivot_root . old && umount -l /old \
         && echo ready $$ && JAVA_TOOL_OPTIONS=-Dof=container exec {java} -Xmx64m -cp /classes Sleep 1>&2",
        classes = classes.path().display(),
        java = jdk.java.display(),
    );
    let jvm =
        Hostile::start(Command::new("unshare").args(["-m", "sh", "-c", &script]).stderr(Stdio::null()))?;
    wait_until("a JVM runs", || {
        Ok(fs::read_to_string(format!("/proc/{}/maps", jvm.pid)).unwrap_or_default().contains("libjvm.so"))
    })?;
    let planned = within(AT_ONCE * 3, &["plan", "--pid", &jvm.pid()])?;
    if planned.stdout.contains("of=container") || planned.status.code() != Some(2) {
        return Err(format!("a command line of a container is advised: {planned:?}").into());
    }
    Ok(())
}

/// A pipe that is full.
fn full_pipe() -> Result<(fs::File, fs::File), Box<dyn Error>> {
    let (from, mut to) = sys::pipe()?;
    while wait_writable(&to, Duration::ZERO)? {
        to.write_all(&[b'x'; 4096])?;
    }
    Ok((from, to))
}

fn unread() -> TestResult {
    let place = Place::new()?;
    let sleeper = place.hostile("memory", &["1"])?;
    let before = fs::read_to_string(DELAYS)?;
    each([true, false].iter().map(|of_errors| {
        let (_from, to) = full_pipe()?;
        let file = place.text("recording");
        let _ = fs::remove_file(&file);
        let mut command = hugewise(&["record", "--seconds", "1", "-o", &file, &sleeper.pid()]);
        command.stdin(Stdio::null());
        match of_errors {
            true => command.stdout(Stdio::null()).stderr(to),
            false => command.stdout(to).stderr(Stdio::null()),
        };
        let mut child = command.spawn()?;
        wait_until("the recorder changes a setting", || {
            Ok(fs::read_to_string(DELAYS)? != before || child.try_wait()?.is_some())
        })?;
        std::thread::sleep(Duration::from_secs(3));
        Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status()?;
        let begin = Instant::now();
        while child.try_wait()?.is_none() {
            if begin.elapsed() > AT_ONCE {
                child.kill()?;
                child.wait()?;
                return Err(format!("of errors: {of_errors}: SIGTERM does not end it").into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        match fs::read_to_string(DELAYS)? == before {
            true => Ok(()),
            false => Err(format!("of errors: {of_errors}: a setting differs").into()),
        }
    }))
}

/// A recording beyond a limit of the size of files.
fn limited(place: &Place, pid: &str) -> TestResult {
    let (before, file) = (fs::read_to_string(DELAYS)?, place.text("limited"));
    let recorder = format!("ulimit -f 1; exec {} record --seconds 2 -o {file} {pid}", program().display());
    let recorder = Running::start(Command::new("sh").args(["-c", &recorder]))?;
    let ended = ended(recorder, AT_ONCE)?;
    match ended.status.code().is_some() && fs::read_to_string(DELAYS)? == before {
        true => Ok(()),
        false => Err(format!("a limit of the size of files leaves a setting: {ended:?}").into()),
    }
}

/// Blocked signals are inherited, and so is that ends of children are not reported.
fn signals() -> TestResult {
    let place = Place::new()?;
    let sleeper = place.hostile("memory", &["1"])?;
    let caller = place.helper("caller")?;
    let started = |how: &str, words: &[&str]| {
        let mut command = Command::new(&caller);
        command.arg(how).arg(program()).args(words);
        command
    };
    let file = place.text("recording");
    let words = ["record", "--seconds", "60", "-o", &file, &sleeper.pid()];
    ends_by("TERM", Running::start(&mut started("blocked", &words))?, Duration::from_secs(2))?;
    limited(&place, &sleeper.pid())?;
    let run = Running::start(&mut started("unreported", &["run", "--backing", "thp", "--", "sleep", "1"]))?;
    let run = ended(run, AT_ONCE * 2)?.ended_with(0)?;
    match run.stderr.contains("no report will follow") {
        true => Err(format!("the program was not observed: {run:?}").into()),
        false => Ok(()),
    }
}
