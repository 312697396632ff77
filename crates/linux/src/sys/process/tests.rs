use std::{
    fs,
    io::Read,
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, net::UnixStream},
    },
    path::PathBuf,
};

use super::*;

fn wait(mut child: GroupLeader) -> io::Result<ChildExit> {
    loop {
        if let Some(ended) = child.wait(Duration::from_secs(10))? {
            return Ok(ended);
        }
    }
}

#[test]
fn the_exit_status_and_usage_come_back() -> io::Result<()> {
    let ended = wait(GroupLeader::start(Command::new("sh").args(["-c", "exit 3"]), false)?)?;
    assert_eq!(ended.status.code(), Some(3));
    assert!(ended.minor_faults > 0);
    Ok(())
}

/// A shell and its utilities are smaller than this process; the copy that forks is as large.
#[test]
fn the_peak_is_that_of_the_program_and_not_of_its_starter() -> io::Result<()> {
    let touched = vec![1u8; 64 << 20];
    let start = |script: &str| wait(GroupLeader::start(Command::new("sh").args(["-c", script]), false)?);
    let small = start("exit 0")?;
    assert_eq!(small.max_rss, None);
    let large = start("x=$(head -c 200000000 /dev/zero | tr '\\0' x); exit 0")?;
    assert!(large.max_rss.is_some_and(|max| max > Bytes(200_000_000)), "{:?}", large.max_rss);
    assert_eq!(touched[1 << 20], 1);
    Ok(())
}

#[test]
fn code_of_another_user_has_no_group_terminal_or_file_of_ours() -> io::Result<()> {
    if !is_root() {
        return Ok(());
    }
    let secret = File::open("/etc/passwd")?;
    // SAFETY: makes a descriptor inheritable.
    checked(unsafe { libc::fcntl(secret.as_raw_fd(), libc::F_SETFD, 0) })?;
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new("sh");
    let script = "id -u; id -g; id -G; ls -m /proc/$$/fd; grep NoNewPrivs /proc/$$/status; \
                  cut -d' ' -f5-7 /proc/$$/stat | sed s/$$/own/g";
    command.args(["-c", script]).stdin(std::process::Stdio::null()).stdout(OwnedFd::from(theirs));
    let child = GroupLeader::start_as(&mut command, User { uid: 65534, gid: 65533 })?;
    drop(command);
    let mut said = String::new();
    ours.read_to_string(&mut said)?;
    assert_eq!(wait(child)?.status.code(), Some(0));
    // Process group, session, terminal.
    assert_eq!(said, "65534\n65533\n65533\n0, 1, 2\nNoNewPrivs:\t1\nown own 0\n");
    Ok(())
}

#[test]
fn thp_is_disabled_for_the_child_and_its_children() -> io::Result<()> {
    let script = "sh -c 'grep -q THP_enabled:.0 /proc/self/status'";
    assert!(wait(GroupLeader::start(Command::new("sh").args(["-c", script]), true)?)?.status.success());
    Ok(())
}

#[test]
fn dropping_a_child_kills_its_group() -> io::Result<()> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 1000 & echo started; wait"]).stdout(OwnedFd::from(theirs));
    let child = GroupLeader::start(&mut command, false)?;
    drop(command); // Closes our copy of the other end.
    let mut said = [0u8; 8];
    ours.read_exact(&mut said)?;
    drop(child);
    // All writers are gone; otherwise this would block for a thousand seconds.
    assert_eq!(ours.read(&mut said)?, 0);
    Ok(())
}

#[test]
fn a_program_of_another_user_has_its_groups_and_home_and_a_folder_that_it_may_enter() -> io::Result<()> {
    if !is_root() {
        return Ok(());
    }
    let closed = tempfile::tempdir()?;
    fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700))?;
    let account = Account {
        name: "other".to_owned(),
        user: User { uid: 65534, gid: 65533 },
        home: PathBuf::from("/home/other"),
        groups: vec![65531, 65532],
    };
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new("sh");
    command.args(["-c", "id -u; id -g; id -G; pwd; echo $HOME $USER $LOGNAME"]);
    command.current_dir(closed.path()).stdout(OwnedFd::from(theirs));
    let child = GroupLeader::start_for(&mut command, &account, false)?;
    drop(command);
    let mut said = String::new();
    ours.read_to_string(&mut said)?;
    assert_eq!(wait(child)?.status.code(), Some(0));
    assert_eq!(said, "65534\n65533\n65533 65531 65532\n/\n/home/other other other\n");
    Ok(())
}

/// The kernel clears the death signal of a process that changes its user.
#[test]
fn a_program_of_another_user_ends_with_its_starter() -> io::Result<()> {
    if !is_root() {
        return Ok(());
    }
    let account = Account {
        name: "other".to_owned(),
        user: User { uid: 65534, gid: 65534 },
        home: PathBuf::from("/"),
        groups: Vec::new(),
    };
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new("sh");
    command.args(["-c", "echo started; exec sleep 1000"]).stdout(OwnedFd::from(theirs));
    // The death signal is tied to the thread.
    let started = std::thread::spawn(move || {
        let child = GroupLeader::start_for(&mut command, &account, false);
        drop(command);
        let mut said = [0u8; 8];
        ours.read_exact(&mut said).and(child).map(|child| (mem::ManuallyDrop::new(child), ours))
    });
    let (_child, mut ours) = started.join().map_err(|_| io::Error::other("the starter failed"))??;
    // Else this would block for a thousand seconds.
    assert_eq!(ours.read(&mut [0u8; 8])?, 0);
    Ok(())
}
