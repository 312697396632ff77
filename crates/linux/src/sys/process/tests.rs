use std::{
    fs,
    io::Read,
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, net::UnixStream},
    },
};

use super::*;
use crate::users::{Account, User};

fn shell(script: &str) -> Program {
    let mut program = Program::new("sh");
    program.args(["-c", script]);
    program
}

fn other_user(groups: &[u32]) -> Account {
    let user = User { uid: 65534, gid: 65533 };
    Account { name: "other".to_owned(), user, home: "/home/other".into(), groups: groups.to_vec() }
}

fn wait(mut child: GroupLeader) -> io::Result<ChildExit> {
    loop {
        if let Some(ended) = child.wait(Duration::from_secs(10))? {
            return Ok(ended);
        }
    }
}

#[test]
fn the_exit_status_and_usage_come_back() -> io::Result<()> {
    let ended = wait(shell("exit 3").start()?)?;
    assert_eq!(ended.status.code(), Some(3));
    assert!(ended.minor_faults > 0);
    Ok(())
}

/// A shell and its utilities are smaller than this process; the copy that forks is as large.
#[test]
fn the_peak_is_that_of_the_program_and_not_of_its_starter() -> io::Result<()> {
    let touched = vec![1u8; 64 << 20];
    let start = |script: &str| wait(shell(script).start()?);
    let small = start("exit 0")?;
    assert_eq!(small.max_rss, None);
    let large = start("x=$(head -c 200000000 /dev/zero | tr '\\0' x); exit 0")?;
    assert!(large.max_rss.is_some_and(|max| max > Bytes(200_000_000)), "{:?}", large.max_rss);
    assert_eq!(touched[1 << 20], 1);
    Ok(())
}

/// Starts a script as another user; returns what it printed.
fn printed(mut program: Program, account: &Account) -> io::Result<String> {
    let (mut ours, theirs) = UnixStream::pair()?;
    program.as_user(account).stdout(OwnedFd::from(theirs));
    let child = program.start()?;
    let mut said = String::new();
    ours.read_to_string(&mut said)?;
    assert_eq!(wait(child)?.status.code(), Some(0));
    Ok(said)
}

#[test]
fn code_of_another_user_has_no_group_terminal_file_privilege_or_signal_of_ours() -> io::Result<()> {
    if !is_root() {
        return Ok(());
    }
    let secret = File::open("/etc/passwd")?;
    // SAFETY: makes a descriptor inheritable, and ignores a signal that nothing here sends.
    unsafe {
        checked(libc::fcntl(secret.as_raw_fd(), libc::F_SETFD, 0))?;
        libc::signal(libc::SIGUSR2, libc::SIG_IGN);
    }
    let script = "id -u; id -g; id -G; ls -m /proc/$$/fd; readlink /proc/$$/fd/0 /proc/$$/fd/2; umask; \
                  grep -hE 'NoNewPrivs|Cap(Inh|Prm|Eff|Amb)|SigIgn' /proc/$$/status; \
                  cut -d' ' -f5-7 /proc/$$/stat | sed s/$$/own/g";
    let said = printed(shell(script), &other_user(&[65532, 65531, 65532]))?;
    // SAFETY: as it was.
    unsafe { libc::signal(libc::SIGUSR2, libc::SIG_DFL) };
    let zero = "0000000000000000";
    // Process group, session, terminal.
    let expected = format!(
        "65534\n65533\n65533 65531 65532\n0, 1, 2\n/dev/null\n/dev/null\n0022\nSigIgn:\t{zero}\n\
         CapInh:\t{zero}\nCapPrm:\t{zero}\nCapEff:\t{zero}\nCapAmb:\t{zero}\nNoNewPrivs:\t1\nown own 0\n"
    );
    assert_eq!(said, expected);
    Ok(())
}

#[test]
fn code_of_another_user_is_not_protected_from_the_oom_killer() -> io::Result<()> {
    if !is_root() || fs::write("/proc/self/oom_score_adj", "-7").is_err() {
        return Ok(());
    }
    let said = printed(shell("cat /proc/self/oom_score_adj"), &other_user(&[]));
    fs::write("/proc/self/oom_score_adj", "0")?;
    assert_eq!(said?, "0\n");
    Ok(())
}

#[test]
fn code_of_another_user_has_only_variables_that_are_listed_or_given() -> io::Result<()> {
    if !is_root() {
        return Ok(());
    }
    // The variables of this process: cargo's, of which none is listed but PATH.
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
    let mut program = shell("env | cut -d= -f1 | sort");
    program.env("GIVEN", "1").env("HOME", "/given").env_remove("LANG").env_remove("TZ");
    let said = printed(program, &other_user(&[]))?;
    let inherited = |name: &str| ["LANGUAGE", "LD_LIBRARY_PATH"].contains(&name) || name.starts_with("LC_");
    // The shell sets PWD and others.
    let names: Vec<&str> = said
        .lines()
        .filter(|name| !inherited(name) && !["PWD", "OLDPWD", "SHLVL", "_"].contains(name))
        .collect();
    assert_eq!(names, ["GIVEN", "HOME", "LOGNAME", "PATH", "USER"]);
    Ok(())
}

#[test]
fn a_tool_of_the_system_is_not_found_through_path_and_has_no_variable_of_ours() -> io::Result<()> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut program = Program::of_system("env")?;
    program.stdout(OwnedFd::from(theirs));
    let child = program.start()?;
    let mut said = String::new();
    ours.read_to_string(&mut said)?;
    assert!(wait(child)?.status.success());
    assert!(said.contains("PATH=/usr/bin:/bin:/usr/sbin:/sbin\n"), "{said}");
    assert!(!said.contains("CARGO") && !said.contains("LD_LIBRARY_PATH"), "{said}");
    // cargo is in PATH.
    assert!(Program::of_system("cargo").is_err());
    Ok(())
}

#[test]
fn an_orphan_is_not_a_child_and_has_our_pidfd() -> io::Result<()> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut program = shell("grep Pid: /proc/self/fdinfo/0; pwd");
    program.stdout(OwnedFd::from(theirs));
    program.start_orphan()?;
    let mut said = String::new();
    ours.read_to_string(&mut said)?;
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(words, ["Pid:", &std::process::id().to_string(), "/"]);
    let children = format!("/proc/self/task/{}/children", std::process::id());
    assert!(fs::read_to_string(children).is_ok_and(|children| !children.contains("sh")));
    Ok(())
}
#[test]
fn thp_is_disabled_for_the_child_and_its_children() -> io::Result<()> {
    let script = "sh -c 'grep -q THP_enabled:.0 /proc/self/status'";
    let mut program = shell(script);
    program.thp_disabled(true);
    assert!(wait(program.start()?)?.status.success());
    Ok(())
}

#[test]
fn dropping_a_child_kills_its_group() -> io::Result<()> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut program = shell("sleep 1000 & echo started; wait");
    program.stdout(OwnedFd::from(theirs));
    let child = program.start()?;
    let mut said = [0u8; 8];
    ours.read_exact(&mut said)?;
    drop(child);
    // All writers are gone; otherwise this would block for a thousand seconds.
    assert_eq!(ours.read(&mut said)?, 0);
    Ok(())
}

/// The folder may be entered, but is reached through one that may not.
#[test]
fn a_program_of_another_user_starts_in_a_folder_that_its_user_can_reach() -> io::Result<()> {
    if !is_root() {
        return Ok(());
    }
    let closed = tempfile::tempdir()?;
    let inner = closed.path().join("inner");
    fs::create_dir(&inner)?;
    fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700))?;
    for (mode, expected) in [(0o700, "/"), (0o711, inner.to_str().unwrap_or_default())] {
        fs::set_permissions(closed.path(), fs::Permissions::from_mode(mode))?;
        let mut program = shell("/bin/pwd; echo $HOME $USER $LOGNAME");
        program.current_dir(&inner);
        let said = printed(program, &other_user(&[]))?;
        assert_eq!(said, format!("{expected}\n/home/other other other\n"));
    }
    Ok(())
}

/// The kernel clears the death signal of a process that changes its user.
#[test]
fn a_program_of_another_user_ends_with_its_starter() -> io::Result<()> {
    if !is_root() {
        return Ok(());
    }
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut program = shell("echo started; exec sleep 1000");
    program.as_user(&other_user(&[])).stdout(OwnedFd::from(theirs));
    // The death signal is tied to the thread.
    let started = std::thread::spawn(move || {
        let child = program.start();
        let mut said = [0u8; 8];
        ours.read_exact(&mut said).and(child).map(|child| (mem::ManuallyDrop::new(child), ours))
    });
    let (_child, mut ours) = started.join().map_err(|_| io::Error::other("the starter failed"))??;
    // Else this would block for a thousand seconds.
    assert_eq!(ours.read(&mut [0u8; 8])?, 0);
    Ok(())
}
