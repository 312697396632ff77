//! Output in places that this user, another user or the caller has made.

use std::{
    error::Error,
    io::Read,
    os::unix::fs::{PermissionsExt, lchown, symlink},
    process::Command,
};

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

/// The account without rights.
const OTHER: u32 = 65534;

fn write(path: &Path, readers: Readers) -> io::Result<()> {
    let output = Output::at(path, readers)?;
    output.check()?;
    output.write(b"page\n")
}

fn pipe(path: &Path, mode: u32) -> TestResult {
    assert!(Command::new("mkfifo").arg("-m").arg(format!("{mode:o}")).arg(path).status()?.success());
    Ok(())
}

#[test]
fn a_file_has_the_mode_of_its_readers_and_replaces_what_is_there() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (file, victim) = (dir.path().join("page"), dir.path().join("victim"));
    fs::write(&victim, "precious")?;
    symlink(&victim, &file)?;
    for readers in [Readers::Owner, Readers::All, Readers::Owner] {
        write(&file, readers)?;
        let found = fs::symlink_metadata(&file)?;
        assert!(found.is_file(), "the link is replaced");
        assert_eq!((found.mode() & 0o7777, fs::read_to_string(&file)?), (readers.mode(), "page\n".into()));
    }
    assert_eq!((fs::read_to_string(&victim)?, fs::read_dir(dir.path())?.count()), ("precious".into(), 2));
    Ok(())
}

#[test]
fn earlier_readers_keep_what_they_opened() -> TestResult {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("page");
    fs::write(&file, "old")?;
    let mut opened_before = File::open(&file)?;
    fs::hard_link(&file, dir.path().join("other name"))?;
    write(&file, Readers::Owner)?;
    let mut seen = String::new();
    opened_before.read_to_string(&mut seen)?;
    assert_eq!((seen, fs::read_to_string(dir.path().join("other name"))?), ("old".into(), "old".into()));
    Ok(())
}

#[test]
fn an_inherited_file_is_written_at_its_position() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (shown, link) = (dir.path().join("shown"), dir.path().join("stdout"));
    let mut redirected = File::create(&shown)?;
    redirected.write_all(b"text\n")?;
    symlink(format!("/proc/self/fd/{}", redirected.as_raw_fd()), &link)?;
    write(&link, Readers::All)?;
    write(Path::new(&format!("/dev/fd/{}", redirected.as_raw_fd())), Readers::Owner)?;
    assert!(fs::symlink_metadata(&link)?.is_symlink());
    assert_eq!(fs::read_to_string(&shown)?, "text\npage\npage\n");
    let reads = File::open(&shown)?;
    assert!(write(Path::new(&format!("/dev/fd/{}", reads.as_raw_fd())), Readers::All).is_err());
    Ok(())
}

#[test]
fn a_pipe_of_this_user_is_written_to_unless_others_read_it() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (closed, open) = (dir.path().join("closed"), dir.path().join("open"));
    pipe(&closed, 0o600)?;
    pipe(&open, 0o644)?;
    let refused = write(&open, Readers::Owner).map_err(|error| error.to_string());
    assert!(refused.is_err_and(|why| why.starts_with("other users can read this pipe")));
    for (path, readers) in [(&closed, Readers::Owner), (&open, Readers::All)] {
        let (from, to) = (path.clone(), path.clone());
        let reader = thread::spawn(move || fs::read_to_string(from));
        write(&to, readers)?;
        assert_eq!(reader.join().map_err(|_| "the reader panicked")??, "page\n");
    }
    // Without a reader the write ends, too.
    assert!(write(&closed, Readers::Owner).is_err());
    Ok(())
}

#[test]
fn what_is_neither_file_nor_stream_is_refused() -> TestResult {
    let dir = tempfile::tempdir()?;
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket"))?;
    symlink("loop", dir.path().join("loop"))?;
    for name in ["socket", "loop", ".", "..", "missing/page", "page/"] {
        assert!(write(&dir.path().join(name), Readers::All).is_err(), "{name}");
    }
    assert!(write(Path::new("/"), Readers::All).is_err());
    write(Path::new("/dev/null"), Readers::Owner)?;
    assert_eq!(fs::read_dir(dir.path())?.count(), 2);
    Ok(())
}

/// A folder like /tmp; `None` if this process cannot give files to another user.
fn shared() -> io::Result<Option<tempfile::TempDir>> {
    let dir = tempfile::tempdir()?;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777))?;
    Ok(process::is_root().then_some(dir))
}

#[test]
fn a_pipe_of_another_user_gets_nothing() -> TestResult {
    let Some(dir) = shared()? else { return Ok(()) };
    let (fifo, link) = (dir.path().join("page"), dir.path().join("link"));
    pipe(&fifo, 0o666)?;
    lchown(&fifo, Some(OTHER), Some(OTHER))?;
    symlink(&fifo, &link)?;
    let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo)?;
    for path in [&fifo, &link] {
        for readers in [Readers::All, Readers::Owner] {
            let refused = write(path, readers).map_err(|error| error.to_string());
            assert!(refused.is_err_and(|why| why.contains("uid 65534")), "{}", path.display());
        }
    }
    assert_eq!(reader.read(&mut [0])?, 0);
    Ok(())
}

#[test]
fn a_link_of_another_user_is_replaced() -> TestResult {
    let Some(dir) = shared()? else { return Ok(()) };
    let (victim, fifo) = (dir.path().join("victim"), dir.path().join("fifo"));
    fs::write(&victim, "precious")?;
    pipe(&fifo, 0o600)?;
    for to in [&victim, &fifo, Path::new("/proc/self/fd/1"), Path::new("/dev/tty")] {
        let link = dir.path().join("page");
        let _ = fs::remove_file(&link);
        symlink(to, &link)?;
        lchown(&link, Some(OTHER), Some(OTHER))?;
        write(&link, Readers::Owner)?;
        assert!(fs::symlink_metadata(&link)?.is_file(), "{}", to.display());
    }
    assert_eq!(fs::read_to_string(&victim)?, "precious");
    Ok(())
}

#[test]
fn a_folder_behind_a_link_of_another_user_gets_nothing() -> TestResult {
    let Some(dir) = shared()? else { return Ok(()) };
    let (target, link) = (dir.path().join("target"), dir.path().join("link"));
    fs::create_dir(&target)?;
    symlink(&target, &link)?;
    write(&link.join("ours"), Readers::All)?;
    lchown(&link, Some(OTHER), Some(OTHER))?;
    assert!(write(&link.join("page"), Readers::All).is_err());
    assert!(Folder::create_all(&link.join("new"), 0o755).is_err());
    assert!(Folder::create_all(&link, 0o755).is_err());
    assert_eq!(fs::read_dir(&target)?.count(), 1);
    Ok(())
}
