use std::{
    fs::{self, File},
    io::{Read, Write},
    os::fd::AsFd,
    path::Path,
    process::Command,
};

use super::*;
use crate::{
    interrupt::Interrupt,
    sys::{file::try_lock, process::effective_uid},
};

const LONG: Duration = Duration::from_secs(30);

fn within(time: Duration) -> Deadline<'static> {
    Deadline::after(time, None)
}

#[test]
fn bytes_errors_and_panics_come_back() -> io::Result<()> {
    let large = vec![7; 3 << 20];
    assert_eq!(ask(&[], &within(LONG), large.len(), || Ok(large.clone()))?, large);
    assert!(ask(&[], &within(LONG), 0, || Ok(Vec::new()))?.is_empty());
    let kind = |asked: io::Result<Vec<u8>>| asked.err().map(|error| error.kind());
    let too_long = ask(&[], &within(LONG), large.len() - 1, || Ok(large.clone()));
    assert_eq!(kind(too_long), Some(io::ErrorKind::FileTooLarge));
    let missing = ask(&[], &within(LONG), 9, || fs::read("/no/such"));
    assert_eq!(kind(missing), Some(io::ErrorKind::NotFound));
    let refused = ask(&[], &within(LONG), 9, || Err(io::Error::other("not a regular file")));
    assert_eq!(refused.map_err(|error| error.to_string()), Err("not a regular file".to_owned()));
    let ended = ask(&[], &within(LONG), 9, || std::process::exit(3));
    assert_eq!(kind(ended), Some(io::ErrorKind::UnexpectedEof));
    Ok(())
}

/// The work has a session of its own, no descriptor of this process but those that are kept, and no lock.
#[test]
fn the_work_is_separate_from_this_process() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("lock");
    let (lock, kept) = (File::create(&path)?, File::open(dir.path())?);
    assert!(try_lock(&lock)?);
    let mut aside = Aside::start(&[kept.as_fd()], |answers| {
        let links =
            fs::read_dir("/proc/self/fd")?.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        let open: Vec<String> = links.map(|link| link.display().to_string()).collect();
        answers.send(open.join("\n").as_bytes(), None)?;
        // Works on when it is to end.
        answers.receive(&mut [0])
    })?;
    let open = String::from_utf8_lossy(&aside.receive(1 << 16, &within(LONG))?.bytes).into_owned();
    let mut open: Vec<&str> = open.lines().filter(|link| !link.starts_with("/proc/")).collect();
    open.sort_unstable();
    let kept = dir.path().display().to_string();
    assert!(
        matches!(open[..], ["/dev/null", "/dev/null", "/dev/null", dir, socket]
        if dir == kept && socket.starts_with("socket:")),
        "{open:?}"
    );
    let stat = fs::read_to_string(format!("/proc/{}/stat", aside.pid()))?;
    let session = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(3));
    assert_eq!(session, Some(aside.pid().to_string().as_str()));
    drop(lock);
    // The children of other tests have it until they close it, at their start.
    let begin = Instant::now();
    while !try_lock(&File::open(&path)?)? {
        assert!(begin.elapsed() < LONG, "the child holds the lock");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A child that does not answer is killed at the deadline, and at a signal.
#[test]
fn a_deadline_and_a_signal_end_the_wait() -> io::Result<()> {
    let silent = |deadline: &Deadline<'_>| {
        ask(&[], deadline, 9, || {
            thread::sleep(Duration::from_secs(1000));
            Ok(Vec::new())
        })
        .err()
        .map(|error| error.kind())
    };
    let begin = Instant::now();
    assert_eq!(silent(&within(Duration::from_millis(50))), Some(io::ErrorKind::TimedOut));
    let interrupt = Interrupt::install()?;
    let own = std::process::id().to_string();
    let signal = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        Command::new("sh").args(["-c", "kill -HUP \"$0\"", &own]).status()
    });
    assert_eq!(silent(&Deadline::after(LONG, Some(&interrupt))), Some(io::ErrorKind::Interrupted));
    assert!(signal.join().is_ok_and(|sent| sent.is_ok()));
    assert!(begin.elapsed() < LONG);
    Ok(())
}

#[test]
fn a_message_of_drips_is_bounded_in_time() -> io::Result<()> {
    let mut aside = Aside::start(&[], |answers| {
        for _ in 0..1000 {
            answers.send(b"x", None)?;
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    })?;
    let deadline = within(Duration::from_millis(200));
    let mut messages = 0;
    while aside.receive(1, &deadline).is_ok() {
        messages += 1;
    }
    assert!((1..1000).contains(&messages), "{messages}");
    Ok(())
}

#[test]
fn a_conversation_has_several_messages() -> io::Result<()> {
    let mut aside = Aside::start(&[], |answers| {
        let mut asked = [0];
        loop {
            answers.receive(&mut asked)?;
            answers.send(&asked.repeat(3), None)?;
        }
    })?;
    for letter in [b'a', b'b'] {
        aside.send(&[letter], &within(LONG))?;
        assert_eq!(aside.receive(3, &within(LONG))?.bytes, [letter; 3]);
    }
    Ok(())
}

#[test]
fn a_socket_comes_back_connected() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path)?;
    let connected = ask_for_socket(&[], &within(LONG), || Ok(UnixStream::connect(&path)?.into()))?;
    let mut theirs = listener.accept()?.0;
    UnixStream::from(connected).write_all(b"ping")?;
    let mut said = String::new();
    theirs.read_to_string(&mut said)?;
    assert_eq!(said, "ping");
    Ok(())
}

#[test]
fn files_below_a_folder_are_checked() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let own = effective_uid();
    fs::write(dir.path().join("plain"), "text")?;
    std::os::unix::fs::symlink("plain", dir.path().join("link"))?;
    let read =
        |path: &str, owner, limit| below::read(dir.path(), Path::new(path), owner, limit, &within(LONG));
    assert_eq!(read("plain", own, 4)?, b"text");
    assert!(
        read("plain", own, 3).is_err() && read("plain", own + 1, 4).is_err() && read("link", own, 4).is_err()
    );
    let environ = below::read(Path::new("/proc/self"), Path::new("environ"), own, 1 << 20, &within(LONG));
    assert!(environ.is_err_and(|error| error.to_string().contains("store files")), "a file of proc was read");
    Ok(())
}

/// A full backlog, in which a blocking connection would wait.
#[test]
fn connecting_does_not_wait() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let listener = std::os::unix::net::UnixListener::bind(dir.path().join("socket"))?;
    let connect = |owner| below::connect(dir.path(), Path::new("socket"), owner, &within(LONG));
    let own = effective_uid();
    assert!(connect(own + 1).is_err());
    let mut waiting = vec![connect(own)?];
    let full = loop {
        match connect(own) {
            Ok(connected) => waiting.push(connected),
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock, "after {}", waiting.len());
    drop(listener);
    Ok(())
}

/// Memory that other threads allocate during the fork does not stop the work.
#[test]
fn work_allocates_beside_busy_threads() -> io::Result<()> {
    let busy = std::sync::atomic::AtomicBool::new(true);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while busy.load(std::sync::atomic::Ordering::Relaxed) {
                    drop(std::hint::black_box(vec![1u8; 100_000]));
                }
            });
        }
        let asked: io::Result<Vec<Vec<u8>>> =
            (0..40).map(|_| ask(&[], &within(LONG), 1 << 20, || Ok(vec![5; 1 << 18]))).collect();
        busy.store(false, std::sync::atomic::Ordering::Relaxed);
        assert!(asked.is_ok_and(|asked| asked.iter().all(|bytes| bytes.len() == 1 << 18)));
    });
    Ok(())
}
