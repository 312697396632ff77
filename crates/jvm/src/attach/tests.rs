use std::{
    io::{Read, Write},
    os::unix::{fs::symlink, net::UnixListener},
    time::Instant,
};

use proptest::prelude::*;

use super::*;

const STATUS: &str =
    "Name:\tjava\nPid:\t814\nUid:\t1000\t1001\t1000\t1000\nNSpid:\t814\t7\nSigCgt:\t2000000181005ccf\n";

#[test]
fn the_number_in_its_own_name_space_counts() {
    let expected = Status { effective_uid: 1001, own_pid: 7, catches_quit: true };
    assert_eq!(parse_status(STATUS), Some(expected));
    let plain = STATUS.replace("NSpid:\t814\t7\n", "").replace("5ccf", "5ccb");
    let expected = Status { effective_uid: 1001, own_pid: 814, catches_quit: false };
    assert_eq!(parse_status(&plain), Some(expected));
    assert_eq!(parse_status("Uid:\t0\n"), None);
}

#[test]
fn the_request_follows_no_link_and_is_taken_away() -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let (bait, other) = (folder.path().join("bait"), folder.path().join("other"));
    symlink(folder.path().join("victim"), &bait)?;
    let request = AttachFile::create(1, [bait.clone(), other.clone()]).map_err(io::Error::other)?;
    assert!(other.exists() && !folder.path().join("victim").exists());
    assert!(AttachFile::create(1, [bait, other.clone()]).is_err(), "an existing file was used");
    drop(request);
    assert!(!other.exists());
    Ok(())
}

fn jvm<'a>(root: &'a Root, folder: &Path, owner: u32) -> io::Result<Jvm<'a>> {
    Ok(Jvm {
        root,
        deadline: Deadline::after(Duration::from_secs(30), None),
        pid: std::process::id(),
        owner,
        folder: File::open(folder)?,
        socket: "socket".to_owned(),
        connected: RefCell::default(),
        is_silent: Cell::default(),
    })
}

#[test]
fn only_a_socket_of_the_process_is_used() -> io::Result<()> {
    let (folder, elsewhere) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let (root, ours) = (Root::live(), process::effective_uid());
    assert!(!jvm(&root, folder.path(), ours)?.is_listening().map_err(io::Error::other)?, "there is none");
    let bait = elsewhere.path().join("socket");
    let _listener = UnixListener::bind(&bait)?;
    assert!(jvm(&root, elsewhere.path(), ours)?.is_listening().map_err(io::Error::other)?);
    assert!(jvm(&root, elsewhere.path(), ours + 1)?.is_listening().is_err(), "a socket of another user");
    symlink(&bait, folder.path().join("socket"))?;
    assert!(jvm(&root, folder.path(), ours)?.is_listening().is_err(), "a link to a socket");
    Ok(())
}

/// A JVM that gives these answers, one to each connection, or none to the rest.
fn served(folder: &Path, answers: &'static [&'static [u8]]) -> io::Result<thread::JoinHandle<usize>> {
    let listener = UnixListener::bind(folder.join("socket"))?;
    listener.set_nonblocking(true)?;
    Ok(thread::spawn(move || {
        let (mut connections, begin) = (Vec::new(), Instant::now());
        while begin.elapsed() < Duration::from_secs(2) {
            let Ok((mut stream, _)) = listener.accept() else {
                thread::sleep(Duration::from_millis(5));
                continue;
            };
            let mut asked = [0; 17];
            let _ = stream.read_exact(&mut asked);
            match answers.get(connections.len()) {
                Some(answer) if asked == *b"1\0jcmd\0VM.info\0\0\0" => drop(stream.write_all(answer)),
                Some(_) => drop(stream.write_all(b"7\nwhat?")),
                None => {
                    connections.push(Some(stream));
                    continue;
                }
            }
            connections.push(None);
        }
        connections.len()
    }))
}

#[test]
fn an_answer_comes_back_and_a_refusal_is_an_error() -> io::Result<()> {
    let (root, folder) = (Root::live(), tempfile::tempdir()?);
    served(
        folder.path(),
        &[b"0\nHeap address: 0x1\nmore\n", b"1\njava.lang.IllegalArgumentException: Unknown\n"],
    )?;
    let jvm = jvm(&root, folder.path(), process::effective_uid())?;
    assert_eq!(jvm.command("VM.info").ok().as_deref(), Some("Heap address: 0x1\nmore\n"));
    let error = jvm.command("VM.info").map_err(|error| error.to_string());
    assert!(error.is_err_and(|text| text.contains("status 1") && text.contains("Unknown")));
    assert!(jvm.command("VM\0info").is_err() && !jvm.is_silent());
    Ok(())
}

#[test]
fn after_a_question_without_an_answer_no_other_is_asked() -> io::Result<()> {
    let (root, folder) = (Root::live(), tempfile::tempdir()?);
    let server = served(folder.path(), &[])?;
    let mut jvm = jvm(&root, folder.path(), process::effective_uid())?;
    jvm.deadline = Deadline::after(Duration::from_millis(300), None);
    assert!(jvm.is_listening().is_ok_and(|listens| listens));
    let not_answered = |asked_before| {
        let asked = jvm.command("VM.info");
        matches!(asked, Err(AttachError::NoAnswer { asked, .. }) if asked == asked_before)
    };
    assert!(not_answered(true) && jvm.is_silent() && not_answered(false));
    // The connection that showed that it listens is that of the question.
    assert!(server.join().is_ok_and(|connections| connections == 1));
    Ok(())
}

#[test]
fn a_stopped_process_is_not_connected_to() -> io::Result<()> {
    let mut child = std::process::Command::new("sleep").arg("1000").spawn()?;
    let kill =
        |signal: &str| std::process::Command::new("kill").args([signal, &child.id().to_string()]).status();
    kill("-STOP")?;
    let root = Root::live();
    while halted::reason(&root, child.id()).is_none() {
        thread::yield_now();
    }
    let refused = Jvm::connect(&root, child.id(), Deadline::after(TIME_LIMIT, None));
    let refused = refused.map_err(|error| error.to_string());
    kill("-KILL")?;
    child.wait()?;
    assert!(refused.is_err_and(|text| text.ends_with(": it is stopped")));
    Ok(())
}

#[test]
fn a_process_that_does_not_listen_is_left_alone() {
    let root = Root::live();
    // This process does not catch SIGQUIT, which would end it.
    let refused = Jvm::connect(&root, std::process::id(), Deadline::after(TIME_LIMIT, None));
    assert!(refused.is_err_and(|error| matches!(error, AttachError::Refused { .. })));
    assert!(Jvm::connect(&root, u32::MAX, Deadline::after(TIME_LIMIT, None)).is_err());
}

proptest! {
    #[test]
    fn no_status_makes_it_panic(text in "(.|\n)*", cut in 0..STATUS.len()) {
        let _ = parse_status(&text);
        let _ = parse_status(&format!("{}{text}", &STATUS[..cut]));
    }
}
