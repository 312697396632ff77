//! Output goes to a new file or to a stream of the caller, whatever stands at its name.

use std::{
    error::Error,
    ffi::OsStr,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, lchown, symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{sys::process::is_root, testing::trials::skip_part};

type TestResult = Result<(), Box<dyn Error>>;

/// The account without rights.
const OTHER: u32 = 65534;
const PRECIOUS: &str = "precious";
/// Far beyond the time of each command, far below that of one that waits for ever.
const DEADLINE: Duration = Duration::from_secs(60);
const LOG: &str = "\
[0.002s][info][gc] Using G1
[0.204s][info][gc] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 9M->4M(96M) 1.500ms
";

/// A folder with a GC log and a victim, and a folder like /tmp in it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Result<Place, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let place = Place { folder };
        fs::write(place.at("gc.log"), LOG)?;
        fs::write(place.at("victim"), PRECIOUS)?;
        fs::create_dir(place.at("shared"))?;
        fs::set_permissions(place.at("shared"), Permissions::from_mode(0o1777))?;
        Ok(place)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The commands that write to `output`, with what they need.
    fn writers(&self, output: &Path) -> [Vec<PathBuf>; 2] {
        let log = self.at("gc.log");
        [
            vec!["gclog".into(), "--html".into(), output.into(), log],
            vec!["run".into(), "--report".into(), output.into(), "--".into(), "true".into()],
        ]
    }

    fn victim(&self) -> io::Result<String> {
        fs::read_to_string(self.at("victim"))
    }
}

/// Runs hugewise; fails if it does not end.
fn hugewise(words: &[impl AsRef<OsStr>]) -> Result<Output, Box<dyn Error>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hugewise"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let end = Instant::now() + DEADLINE;
    while child.try_wait()?.is_none() {
        if Instant::now() > end {
            child.kill()?;
            return Err("it does not end".into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(child.wait_with_output()?)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn pipe(path: &Path, mode: u32) -> TestResult {
    assert!(Command::new("mkfifo").arg("-m").arg(format!("{mode:o}")).arg(path).status()?.success());
    Ok(())
}

fn mode(path: &Path) -> io::Result<u32> {
    Ok(fs::symlink_metadata(path)?.mode() & 0o7777)
}

#[test]
fn a_report_has_mode_0600_and_replaces_a_link() -> TestResult {
    let place = Place::new()?;
    let output = place.at("output");
    for words in place.writers(&output) {
        let _ = fs::remove_file(&output);
        symlink(place.at("victim"), &output)?;
        let ran = hugewise(&words)?;
        assert!(ran.status.success(), "{words:?}: {}", said(&ran));
        assert!(fs::symlink_metadata(&output)?.is_file(), "{words:?}");
        assert_eq!((mode(&output)?, place.victim()?.as_str()), (0o600, PRECIOUS), "{words:?}");
        // A wider mode of the file before is not kept.
        fs::set_permissions(&output, Permissions::from_mode(0o666))?;
        hugewise(&words)?;
        assert_eq!(mode(&output)?, 0o600, "{words:?}");
    }
    Ok(())
}

#[test]
fn a_pipe_without_a_reader_or_with_other_readers_is_refused() -> TestResult {
    let place = Place::new()?;
    let (alone, open) = (place.at("alone"), place.at("open"));
    pipe(&alone, 0o600)?;
    pipe(&open, 0o644)?;
    for (path, why) in [(&alone, "no process reads this pipe"), (&open, "other users can read this pipe")] {
        for words in place.writers(path) {
            let ran = hugewise(&words)?;
            assert!(!ran.status.success() && said(&ran).contains(why), "{words:?}: {}", said(&ran));
        }
    }
    Ok(())
}

#[test]
fn standard_output_gets_the_report_behind_what_it_has() -> TestResult {
    let place = Place::new()?;
    let shown = place.at("shown");
    fs::write(&shown, "before\n")?;
    let status = Command::new(env!("CARGO_BIN_EXE_hugewise"))
        .args(["gclog", "--html", "/dev/stdout"])
        .arg(place.at("gc.log"))
        .stdout(OpenOptions::new().append(true).open(&shown)?)
        .status()?;
    let text = fs::read_to_string(&shown)?;
    assert!(
        status.success() && text.starts_with("before\n") && text.trim_end().ends_with("</html>"),
        "{text}"
    );
    Ok(())
}

/// Whether this test can act for another user; if not, it is counted as skipped.
fn acts_for_others(test: &str) -> bool {
    if !is_root() {
        skip_part(test, "needs root");
    }
    is_root()
}

#[test]
fn another_users_pipe_gets_nothing() -> TestResult {
    if !acts_for_others("output: another user's pipe") {
        return Ok(());
    }
    let place = Place::new()?;
    let (fifo, link) = (place.at("shared/output"), place.at("shared/link"));
    pipe(&fifo, 0o666)?;
    lchown(&fifo, Some(OTHER), Some(OTHER))?;
    symlink(&fifo, &link)?;
    let mut reader = OpenOptions::new().read(true).custom_flags(libc_nonblock()).open(&fifo)?;
    for path in [&fifo, &link] {
        for words in place.writers(path) {
            let ran = hugewise(&words)?;
            assert!(!ran.status.success() && said(&ran).contains("uid 65534"), "{words:?}: {}", said(&ran));
        }
    }
    let live = hugewise(&[
        "compare".as_ref(),
        "--html".as_ref(),
        fifo.as_os_str(),
        "--live".as_ref(),
        "1".as_ref(),
    ])?;
    assert!(said(&live).contains("uid 65534"), "{}", said(&live));
    let mut read = Vec::new();
    reader.read_to_end(&mut read)?;
    assert_eq!(read, b"");
    Ok(())
}

/// O_NONBLOCK on all architectures that Hugewise runs on.
fn libc_nonblock() -> i32 {
    0o4000
}

#[test]
fn another_users_links_are_not_followed() -> TestResult {
    if !acts_for_others("output: another user's links") {
        return Ok(());
    }
    let place = Place::new()?;
    let (link, folder) = (place.at("shared/output"), place.at("shared/folder"));
    fs::create_dir(place.at("target"))?;
    for words in place.writers(&link) {
        let _ = fs::remove_file(&link);
        symlink(place.at("victim"), &link)?;
        lchown(&link, Some(OTHER), Some(OTHER))?;
        let ran = hugewise(&words)?;
        assert!(ran.status.success() && fs::symlink_metadata(&link)?.is_file(), "{words:?}: {}", said(&ran));
        assert_eq!(place.victim()?, PRECIOUS, "{words:?}");
    }
    symlink(place.at("target"), &folder)?;
    lchown(&folder, Some(OTHER), Some(OTHER))?;
    let inner = folder.join("output");
    let capture = ["check".into(), "--capture".into(), folder.join("capture")];
    let capture_in_link = ["check".into(), "--capture".into(), folder.clone()];
    let pages = ["man".into(), "--dir".into(), folder.clone()];
    let recording = ["record".into(), "-o".into(), inner.clone(), "--".into(), "true".into()];
    let all = place.writers(&inner).into_iter();
    for words in all.chain([capture.to_vec(), capture_in_link.to_vec(), pages.to_vec(), recording.to_vec()]) {
        let ran = hugewise(&words)?;
        assert!(said(&ran).contains("link of uid 65534"), "{words:?}: {}", said(&ran));
        assert_eq!(fs::read_dir(place.at("target"))?.count(), 0, "{words:?}");
    }
    Ok(())
}

/// A user owns the folder of the output, and puts links in the place of what is created in it as fast as it can.
#[test]
fn the_owner_of_a_folder_cannot_have_other_files_written() -> TestResult {
    if !acts_for_others("output: a folder of another user") {
        return Ok(());
    }
    let place = Place::new()?;
    let folder = place.at("theirs");
    fs::create_dir(&folder)?;
    chown(&folder, Some(OTHER), Some(OTHER))?;
    let script = "while :; do for f in .hugewise-* output hugewise*.1; do \
                  [ -L \"$f\" ] || { rm -f \"$f\"; ln -s ../victim \"$f\"; }; done; done";
    let mut enemy = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script])
        .current_dir(&folder)
        .stderr(Stdio::null())
        .spawn()?;
    let run = || -> TestResult {
        for _ in 0..10 {
            for words in place.writers(&folder.join("output")) {
                hugewise(&words)?;
            }
            hugewise(&["man".as_ref(), "--dir".as_ref(), folder.as_os_str()])?;
        }
        Ok(())
    };
    let ran = run();
    enemy.kill()?;
    enemy.wait()?;
    ran?;
    assert_eq!(place.victim()?, PRECIOUS);
    assert_eq!(File::open(place.at("victim"))?.metadata()?.uid(), 0);
    Ok(())
}

#[test]
fn a_capture_is_not_written_through_what_is_put_into_it() -> TestResult {
    let place = Place::new()?;
    let capture = place.at("capture");
    fs::create_dir(&capture)?;
    symlink(place.at("victim"), capture.join("proc"))?;
    let ran = hugewise(&["check".as_ref(), "--capture".as_ref(), capture.as_os_str()])?;
    assert!(said(&ran).contains("not empty"), "{}", said(&ran));
    fs::remove_file(capture.join("proc"))?;
    let ran = hugewise(&["check".as_ref(), "--capture".as_ref(), capture.as_os_str()])?;
    assert!(capture.join("proc/meminfo").is_file(), "{}", said(&ran));
    Ok(())
}

#[test]
fn plans_without_end_are_refused() -> TestResult {
    let place = Place::new()?;
    let (long, fifo) = (place.at("long"), place.at("fifo"));
    File::create(&long)?.set_len(1 << 40)?;
    for path in [Path::new("/dev/zero"), Path::new("/dev/urandom"), &long, place.folder.path()] {
        let words = ["apply".as_ref(), "--dry-run".as_ref(), "--plan".as_ref(), path.as_os_str()];
        let ran = hugewise(&words)?;
        assert!(
            ran.status.code() == Some(2) && said(&ran).contains("cannot read the plan"),
            "{}",
            said(&ran)
        );
    }
    pipe(&fifo, 0o600)?;
    let writer = thread::spawn({
        let fifo = fifo.clone();
        move || fs::write(fifo, "{}")
    });
    let ran = hugewise(&["apply".as_ref(), "--dry-run".as_ref(), "--plan".as_ref(), fifo.as_os_str()])?;
    assert!(said(&ran).contains("is not a plan"), "{}", said(&ran));
    writer.join().map_err(|_| "the writer panicked")??;
    Ok(())
}
