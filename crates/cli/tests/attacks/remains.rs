//! What hugewise writes, and what remains of it.

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    TestResult, Trial, attack,
    bounded::{AT_ONCE, COMPARED, ends_within, within},
    hostile::{Hostile, Place, USER},
    needs::{
        Need::{Java, Namespaces, Thp},
        jdks,
    },
    reading::each,
    start::{hugewise, program},
};

const SECRET: &str = "SECRET-OF-ROOT";

pub fn trials() -> Vec<Trial> {
    vec![
        attack("remains: a page at the pipe of another user", &[], pipe),
        attack("remains: a report at the link or pipe of another user", &[], report),
        attack("remains: a page of another process is private", &[Thp], private_page).representing(false),
        attack("remains: the guard and a number that another program has", &[Namespaces], reused)
            .representing(false),
        attack("remains: root's cache in a folder of a user", &[Java], cache).representing(false),
    ]
}

/// A recording with a secret in its command line.
fn recording(place: &Place) -> Result<String, Box<dyn Error>> {
    let file = place.text("recording");
    within(AT_ONCE, &["record", "-o", &file, "--", "sh", "-c", "sleep 0.3", SECRET])?.ended_with(0)?;
    Ok(file)
}

/// A pipe of the ordinary user, which reads from it into a file; and the path of that file.
fn pipe_of_user(place: &Place) -> Result<(Hostile, String, String), Box<dyn Error>> {
    let folder = place.of_user()?.display().to_string();
    let (pipe, stolen) = (format!("{folder}/pipe"), format!("{folder}/stolen"));
    let script = format!("mkfifo {pipe}; echo ready; exec cat {pipe} {pipe} > {stolen}");
    let mut command = Command::new("sh");
    Ok((Hostile::start(command.args(["-c", &script]).uid(USER).gid(USER))?, pipe, stolen))
}

fn pipe() -> TestResult {
    let place = Place::new()?;
    let recording = recording(&place)?;
    each(
        [
            &["report", &recording][..],
            &["compare", "--rounds", "1", "-b", "base", "--", "sh", "-c", "true", SECRET],
        ]
        .iter()
        .map(|words| {
            let (_reader, pipe, stolen) = pipe_of_user(&place)?;
            let options = [&words[..1], &["--html", &pipe], &words[1..]].concat();
            let ended = within(COMPARED, &options)?;
            let read = fs::read_to_string(stolen)?;
            if read.contains(SECRET) || !read.is_empty() {
                return Err(
                    format!("{} bytes of {words:?} went to another user: {ended:?}", read.len()).into()
                );
            }
            Ok(())
        }),
    )
}

fn report() -> TestResult {
    let place = Place::new()?;
    let run = |file: &str| {
        within(AT_ONCE, &["run", "--backing", "thp", "--report", file, "--", "sh", "-c", "true", SECRET])
    };
    let (_reader, pipe, stolen) = pipe_of_user(&place)?;
    run(&pipe)?;
    let read = fs::read_to_string(stolen)?;
    let (kept, link) = (place.text("kept"), place.of_user()?.join("link"));
    fs::write(&kept, "kept")?;
    symlink(&kept, &link)?;
    std::os::unix::fs::lchown(&link, Some(USER), Some(USER))?;
    run(&link.display().to_string())?;
    let without_reader = place.of_user()?.join("unread").display().to_string();
    Command::new("mkfifo").arg(&without_reader).uid(USER).gid(USER).status()?;
    let waited = run(&without_reader);
    if !read.is_empty() || fs::read_to_string(&kept)? != "kept" {
        return Err(format!(
            "{} bytes went to another user, root's file is now {:?}",
            read.len(),
            fs::read_to_string(kept)?
        )
        .into());
    }
    waited.map(drop)
}

fn private_page() -> TestResult {
    let place = Place::new()?;
    let hostile = place.hostile("memory", &["16"])?;
    let page = place.text("page.html");
    let live = ["compare", "--live", &hostile.pid(), "--turn", "1", "--max-time", "20", "--html", &page];
    within(AT_ONCE * 3, &live)?;
    let mode = fs::metadata(&page)?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        Ok(())
    } else {
        Err(format!("the page of another process has mode {mode:o}").into())
    }
}

fn reused() -> TestResult {
    let place = Place::new()?;
    let (memory, pid, out) =
        (place.helper("memory")?.display().to_string(), place.text("server"), place.text("out"));
    // Inside a PID namespace, whose numbers the script chooses. The other program has the number of the server, as the
    // leader of a group.
    let script = format!(
        "{} compare --server \"sh -c 'echo \\$\\$ > {pid}; exec {memory} 30'\" --ready ready --cleanup 'sleep 30' \
            --rounds 2 -b base -- true > {out} 2>&1 &
        hugewise=$!
        for wait in $(seq 200); do
            server=$(cat {pid} 2> /dev/null); [ -n \"$server\" ] && [ ! -d /proc/$server ] && break; sleep 0.05
        done
        for attempt in $(seq 50); do
            echo $((server - 1)) > /proc/sys/kernel/ns_last_pid; setsid sleep 1000 & other=$!
            [ $other = $server ] && break; kill $other
        done
        [ $other = $server ] || {{ echo 'no other program has the number'; exit; }}
        sleep 0.2; kill -s KILL $hugewise; sleep 1.5
        kill -s 0 $other 2> /dev/null && echo alive || echo 'another program was killed'
        {} restore > /dev/null",
        program().display(),
        program().display()
    );
    let mut command = Command::new("unshare");
    command.args(["-p", "-f", "--mount-proc", "--kill-child", "bash", "-c", &script]);
    let ended = ends_within(COMPARED, &mut command)?;
    if ended.stdout.trim() == "alive" {
        return Ok(());
    }
    Err(format!("{}: {:?}, {}", ended.stdout.trim(), ended.stderr, fs::read_to_string(out)?).into())
}

/// The files of a folder.
fn files(folder: &Path) -> Result<BTreeMap<String, String>, Box<dyn Error>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        all.insert(path.display().to_string(), fs::read_to_string(&path)?);
    }
    Ok(all)
}

fn cache() -> TestResult {
    let place = Place::new()?;
    let (home, victim) = (place.of_user()?, place.path("victim"));
    fs::create_dir(&victim)?;
    for number in 0..150 {
        fs::write(victim.join(format!("{number:016x}.json")), "{}")?;
    }
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o700))?;
    let before = files(&victim)?;
    let (folder, link) = (home.join("hugewise"), home.join("link"));
    symlink(&victim, &link)?;
    fs::create_dir(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
    let [one, other] = [&folder, &link].map(|path| path.display().to_string());
    let _swapping = place.hostile("links", &[&one, &other])?;
    let java = jdks().first().ok_or("no JDK")?.java.display().to_string();
    for number in 0..8 {
        let heap = format!("-Xmx{}m", 64 + number);
        let mut command = hugewise(&["run", "--quiet", "--backing", "thp", "--", &java, &heap, "-version"]);
        command.env("XDG_CACHE_HOME", &home).stdout(Stdio::null());
        ends_within(AT_ONCE, &mut command)?;
    }
    let written = fs::read_dir(&folder).into_iter().chain(fs::read_dir(&link)).flatten().flatten();
    let names: Vec<_> = written
        .map(|entry| entry.path())
        .filter(|path| {
            !before.contains_key(&victim.join(path.file_name().unwrap_or_default()).display().to_string())
        })
        .collect();
    if files(&victim)? != before || !names.is_empty() {
        return Err(format!("root writes into a folder that a user chooses: {names:?}").into());
    }
    Ok(())
}
