//! Services: what their users control neither starts programs as root nor takes their place.

use std::{
    error::Error,
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    TestResult, Trial, attack,
    bounded::{AT_ONCE, ends_by, ends_within, within},
    compiling::compiled,
    hostile::{Hostile, Place, USER},
    needs::{
        Need::{Java, Namespaces, Systemd as HasSystemd, Thp},
        jdks,
    },
    reading::each,
    skip,
    start::{EndedProcess, Running, hugewise, program, wait_until},
    systemd::Systemd,
    waiting::SLEEP,
};

const SECRET: &str = "SECRET-OF-ROOT";
const UNIT: &str = "app.service";
const HEAD: &str = "[Unit]\nDefaultDependencies=no\n[Service]\n";

pub fn trials() -> Vec<Trial> {
    let booted = [Thp, Java, Namespaces, HasSystemd];
    vec![
        attack("services: the environment of a process of the service", &booted, environment)
            .representing(false),
        attack("services: a worker of another user that looks like a JVM", &booted, worker)
            .representing(false),
        attack("services: values with line feeds", &booted, line_feeds).representing(false),
        attack("services: a file of variables that its user has replaced", &booted, variables)
            .representing(false),
        attack("services: a systemd that does not answer", &[Namespaces, HasSystemd], silent)
            .representing(false),
        attack("services: SIGKILL of hugewise and its guard", &[Namespaces, HasSystemd], killed)
            .representing(false),
        attack("services: a control group with the name of a unit", &[], group_names),
    ]
}

/// An agent library that adds the users that load it to the file `proof` of the place.
fn agent(place: &Place) -> Result<String, Box<dyn Error>> {
    let (source, library, proof) = (place.path("agent.c"), place.text("agent.so"), place.path("proof"));
    fs::write(&source, include_str!("helpers/agent.c"))?;
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-o", &library])
        .arg(format!("-DPROOF=\"{}\"", proof.display()))
        .arg(source);
    let output = compiler.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    fs::write(&proof, "")?;
    fs::set_permissions(&proof, fs::Permissions::from_mode(0o666))?;
    Ok(library)
}

/// Restarts the service of `unit` by `run --unit`; fails if root loads the agent.
fn restarted(place: &Place, unit: &str) -> TestResult {
    let booted = Systemd::boot(UNIT, unit)?;
    booted.systemctl(&["start", UNIT])?;
    let proof = place.path("proof");
    let by_user = format!("loaded by uid {USER}");
    wait_until("the service has started its JVM", || Ok(fs::read_to_string(&proof)?.contains(&by_user)))?;
    fs::write(&proof, "")?;
    let inner = hugewise(&["run", "--unit", UNIT, "--backing", "thp", "--within", "30"]);
    let ran = ends_within(AT_ONCE * 4, &mut booted.inside(&inner))?;
    let loaded = fs::read_to_string(&proof)?;
    let settings = booted.systemctl(&["show", "-p", "Environment", "-p", "EnvironmentFiles", UNIT])?;
    let drop_ins = booted.output("sh", &["-c", "cat /run/systemd/system/app.service.d/* || true"])?;
    if loaded.contains("uid 0") || format!("{settings}{drop_ins}").contains("agent.so") {
        return Err(format!("root loaded the agent: {loaded}; {settings}; {drop_ins}; {ran:?}").into());
    }
    Ok(())
}

fn environment() -> TestResult {
    let place = Place::new()?;
    let (agent, java) = (agent(&place)?, java()?);
    let classes = compiled("Sleep", SLEEP)?;
    fs::set_permissions(classes.path(), fs::Permissions::from_mode(0o755))?;
    let flags = format!("-Xmx200m -XX:+UseSerialGC -cp {} Sleep", classes.path().display());
    let set = format!("JAVA_TOOL_OPTIONS=-agentpath:{agent}");
    let app = place.script("app", &format!("#!/bin/sh\nexec env {set} {java} {flags}\n"))?;
    restarted(&place, &format!("{HEAD}User={USER}\nExecStartPre=+{java} -version\nExecStart={app}\n"))
}

fn java() -> Result<String, Box<dyn Error>> {
    Ok(jdks().first().ok_or("no JDK")?.java.display().to_string())
}

fn worker() -> TestResult {
    let place = Place::new()?;
    let (agent, java, folder) = (agent(&place)?, java()?, place.of_user()?);
    let set = format!("JAVA_TOOL_OPTIONS=-agentpath:{agent}");
    let worker = place.helper("jvm")?;
    let (worker, folder) = (worker.display(), folder.display());
    let app = format!(
        "#!/bin/sh\n{java} -version\nsetpriv --reuid {USER} --regid {USER} --clear-groups \
         sh -c 'echo loaded by uid {USER} >> {}; HOW=closed FOLDER={folder} {set} exec {worker}' &\nexec sleep 1000\n",
        place.text("proof")
    );
    let app = place.script("app", &app)?;
    restarted(&place, &format!("{HEAD}ExecStart={app}\n"))
}

/// A unit whose JVM sleeps, with `more` lines; and its classes.
fn sleeping(more: &str) -> Result<(String, TempDir), Box<dyn Error>> {
    let classes = compiled("Sleep", SLEEP)?;
    fs::set_permissions(classes.path(), fs::Permissions::from_mode(0o755))?;
    let line = format!("{} -Xmx64m -XX:+UseSerialGC -cp {} Sleep", java()?, classes.path().display());
    Ok((format!("{HEAD}User={USER}\n{more}\nExecStart={line}\n"), classes))
}

/// Restarts the service by `run --unit`.
fn run_unit(booted: &Systemd) -> Result<EndedProcess, Box<dyn Error>> {
    booted.systemctl(&["start", UNIT])?;
    thread::sleep(Duration::from_secs(1));
    let inner = hugewise(&["run", "--unit", UNIT, "--backing", "thp", "--within", "30"]);
    ends_within(AT_ONCE * 4, &mut booted.inside(&inner))
}

fn line_feeds() -> TestResult {
    let (unit, _classes) = sleeping("Environment=\"JAVA_TOOL_OPTIONS='-Dkept=a\\nINJECTED=1\\n\\\"x'\"")?;
    let booted = Systemd::boot(UNIT, &unit)?;
    let ran = run_unit(&booted)?;
    let mut pid = String::new();
    wait_until("the service runs", || {
        pid = booted.systemctl(&["show", "--property=MainPID", "--value", UNIT])?.trim().to_owned();
        Ok(pid != "0")
    })
    .map_err(|error| format!("{error}: {ran:#?}"))?;
    let variables = booted.output("cat", &[&format!("/proc/{pid}/environ")])?;
    let options = variables.split('\0').find_map(|variable| variable.strip_prefix("JAVA_TOOL_OPTIONS="));
    let is_kept = options.is_some_and(|options| options.starts_with("'-Dkept=a\nINJECTED=1\n\"x'"));
    if !is_kept || variables.split('\0').any(|variable| variable.starts_with("INJECTED")) {
        return Err(format!("a line feed ends a variable: {variables:?}; {ran:?}").into());
    }
    Ok(())
}

fn variables() -> TestResult {
    let place = Place::new()?;
    let (folder, secret) = (place.of_user()?, place.text("secret"));
    fs::write(&secret, format!("JAVA_TOOL_OPTIONS {SECRET}\n"))?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    let file = folder.join("env");
    fs::write(&file, "A=1\n")?;
    let (unit, _classes) = sleeping(&format!("EnvironmentFile={}", file.display()))?;
    let booted = Systemd::boot(UNIT, &unit)?;
    booted.systemctl(&["start", UNIT])?;
    fs::remove_file(&file)?;
    symlink(&secret, &file)?;
    let ran = run_unit(&booted)?;
    let drop_ins = booted.output("sh", &["-c", "cat /run/systemd/system/app.service.d/* || true"])?;
    let said = format!("{}{}{drop_ins}", ran.stdout, ran.stderr);
    if said.contains(SECRET) { Err(format!("a file of root was read: {said}").into()) } else { Ok(()) }
}

fn silent() -> TestResult {
    let place = Place::new()?;
    let booted = Systemd::boot(UNIT, &format!("{HEAD}ExecStart={} 64\n", place.helper("memory")?.display()))?;
    booted.systemctl(&["start", UNIT])?;
    let signal = |name: &str| Command::new("kill").args(["-s", name, &booted.pid.to_string()]).status();
    signal("STOP")?;
    let compare = ["compare", "--server", UNIT, "--ready", "80", "--rounds", "1", "-b", "base", "--", "true"];
    let commands =
        [&["run", "--unit", UNIT][..], &["inspect", UNIT], &["collapse", "--dry-run", UNIT], &compare];
    let outcome = each(commands.iter().map(|arguments| {
        let running = Running::start(&mut booted.inside(&hugewise(arguments)))?;
        // nsenter executes hugewise: the signal is for it.
        ends_by("INT", running, Duration::from_secs(2))
            .map_err(|error| format!("{arguments:?}: {error}").into())
            .map(drop)
    }));
    signal("CONT")?;
    outcome
}

/// The processes of the tested program.
pub fn running() -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_ours = |folder: &PathBuf| fs::read_link(folder.join("exe")).is_ok_and(|file| file == program());
    let folders = processes.map(|process| process.path()).filter(is_ours);
    folders.filter_map(|folder| Some(folder.file_name()?.to_string_lossy().into_owned())).collect()
}

fn killed() -> TestResult {
    let place = Place::new()?;
    let unit = format!("{HEAD}ExecStart={} 64\n", place.helper("memory")?.display());
    let booted = Systemd::boot(UNIT, &unit)?;
    booted.systemctl(&["start", UNIT])?;
    let is_active = || booted.output("sh", &["-c", &format!("systemctl is-active {UNIT} || true")]);
    let options = ["--rounds", "3", "-b", "base", "--ready", "/run/never", "--ready-timeout", "60"];
    let inner = hugewise(&[&["compare", "--server", UNIT][..], &options, &["--", "true"]].concat());
    let compared = Running::start(&mut booted.inside(&inner))?;
    let drop_ins =
        || booted.output("sh", &["-c", "ls /run/systemd/system/app.service.d 2> /dev/null || true"]);
    wait_until("the service runs with a drop-in", || {
        Ok(!drop_ins()?.is_empty() && is_active()?.trim() == "active")
    })?;
    Command::new("kill").args(["-s", "KILL"]).args(running()).status()?;
    compared.wait()?;
    let restored = ends_within(AT_ONCE, &mut booted.inside(&hugewise(&["restore"])))?;
    let (left, active) = (drop_ins()?, is_active()?);
    if !left.is_empty() || active.trim() != "active" {
        return Err(format!("after restore it is {active} with {left}: {restored:?}").into());
    }
    restored.ended_with(0).map(drop)
}

/// Control groups below a new one, which are removed when dropped, after the processes in them.
struct Groups(PathBuf, Vec<PathBuf>);

impl Groups {
    fn make() -> Result<Groups, Box<dyn Error>> {
        let parents = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let Some(parent) = parents.into_iter().find(|parent| parent.join("cgroup.controllers").exists())
        else {
            return skip("no control groups of version 2");
        };
        let top = parent.join(format!("hugewise-test-{}", std::process::id()));
        fs::create_dir(&top)?;
        Ok(Groups(top.clone(), vec![top]))
    }

    /// Adds a group below the top, of this user, with a process in it.
    fn add(&mut self, path: &str, user: u32, process: Option<u32>) -> TestResult {
        let mut at = self.0.clone();
        for name in path.split('/') {
            at.push(name);
            if !at.exists() {
                fs::create_dir(&at)?;
                self.1.push(at.clone());
                for file in [&at, &at.join("cgroup.procs"), &at.join("cgroup.subtree_control")] {
                    chown(file, Some(user), Some(user))?;
                }
            }
        }
        match process {
            Some(pid) => Ok(fs::write(at.join("cgroup.procs"), pid.to_string())?),
            None => Ok(()),
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in self.1.iter().rev() {
            let _ = wait_until("a group is empty", || Ok(fs::remove_dir(group).is_ok()));
        }
    }
}

fn group_names() -> TestResult {
    let unit = "hugewise-attacked.service";
    let place = Place::new()?;
    for below in
        ["user.slice/user-65534.slice/user@65534.service/app.slice", "delegated", "\u{1b}]0;title\u{7}"]
    {
        let mut groups = Groups::make()?;
        let hostile = place.hostile("memory", &["1"])?;
        groups.add(&format!("{below}/{unit}"), USER, Some(hostile.pid))?;
        for command in [["inspect", "--json"], ["collapse", "--dry-run"]] {
            let taken = within(AT_ONCE, &[&command[..], &[unit]].concat())?;
            if taken.stdout.contains(&hostile.pid())
                || taken.status.code() != Some(2)
                || taken.stderr.contains('\u{1b}')
            {
                return Err(format!(
                    "below {below:?}, {command:?} takes the process of another user: {taken:?}"
                )
                .into());
            }
        }
        // The real one has this name, too.
        let real = Hostile::start(Command::new(place.helper("memory")?).arg("1"))?;
        groups.add(&format!("system.slice/{unit}"), 0, Some(real.pid))?;
        let found = within(AT_ONCE, &["inspect", "--json", unit])?;
        if found.status.code() != Some(0)
            || !found.stdout.contains(&real.pid())
            || found.stderr.contains('\u{1b}')
        {
            return Err(
                format!("below {below:?}, a user makes the name of a unit ambiguous: {found:?}").into()
            );
        }
        // Before the groups are removed.
        drop((hostile, real));
        drop(groups);
    }
    Ok(())
}
