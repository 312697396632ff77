//! A systemd in namespaces of its own.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{needs::SYSTEMD, skip, start::wait_until};

/// Mounts what a systemd needs, and becomes it; it knows only the units in its own /run.
const BOOT: &str = "set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo '[Unit]\nDefaultDependencies=no' > /run/systemd/system/default.target
cp \"$1\"/* /run/systemd/system/
exec env -i container=other PATH=\"$PATH\" SYSTEMD_UNIT_PATH=/run/systemd/system \\
    \"$0\" --system --log-target=null --show-status=no";

/// A systemd that knows some units. Ends all its processes when dropped.
pub struct Systemd {
    /// The process that ends all others.
    outer: Child,
    /// systemd itself.
    pub pid: u32,
    group: PathBuf,
}

impl Systemd {
    /// Starts a systemd that knows the unit `name` with this text.
    pub fn boot(name: &str, text: &str) -> Result<Systemd, Box<dyn Error>> {
        Systemd::boot_with(&[(name, text)])
    }

    /// Starts a systemd that knows these units, by name and text.
    pub fn boot_with(units: &[(&str, &str)]) -> Result<Systemd, Box<dyn Error>> {
        let groups = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let Some(groups) = groups.into_iter().find(|groups| groups.join("cgroup.controllers").exists())
        else {
            return skip("no control groups of version 2");
        };
        let folder = tempfile::tempdir()?;
        for (name, text) in units {
            fs::write(folder.path().join(name), text)?;
        }
        let group = groups.join(format!("hugewise-test-{}", std::process::id()));
        fs::create_dir(&group)?;
        let procs = group.join("cgroup.procs");
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\"; exec \"$@\""]).arg(procs);
        command.args(["unshare", "-m", "-p", "-f", "-i", "-u", "-C", "--mount-proc", "--kill-child"]);
        command.args(["sh", "-c", BOOT, SYSTEMD]).arg(folder.path());
        let outer = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut booted = Systemd { outer, pid: 0, group };
        wait_until("systemd runs", || {
            if booted.outer.try_wait()?.is_some() {
                return skip("systemd does not start in namespaces here");
            }
            let children = format!("/proc/{0}/task/{0}/children", booted.outer.id());
            let children = fs::read_to_string(children).unwrap_or_default();
            booted.pid = children.trim().parse().unwrap_or_default();
            Ok(booted.pid != 0 && booted.systemctl(&["show", "--property=Version"]).is_ok())
        })?;
        Ok(booted)
    }

    /// The command in the namespaces of this systemd.
    pub fn inside(&self, inner: &Command) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid.to_string(), "--mount", "--pid", "--ipc", "--uts", "--cgroup"]);
        command.arg("--").arg(inner.get_program()).args(inner.get_args());
        command
    }

    /// The standard output of a program in the namespaces; an error if it fails.
    pub fn output(&self, program: &str, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
        let mut inner = Command::new(program);
        let ran = self.inside(inner.args(arguments)).stdin(Stdio::null()).output()?;
        if !ran.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&ran.stderr)).into());
        }
        Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
    }

    pub fn systemctl(&self, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
        self.output("systemctl", arguments)
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        let _ = self.outer.kill();
        let _ = self.outer.wait();
        let _ = wait_until("its processes have ended", || Ok(remove(&self.group).is_ok()));
    }
}

/// Removes a control group and those below it.
fn remove(group: &Path) -> io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}
