//! `compare --server NAME.service`: a service of a systemd that runs in namespaces of its own.

use std::{error::Error, fs, net::TcpListener, process::Command};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    compiling::compiled,
    needs::{
        Need::{self, Java, Namespaces, Pool, Root, Thp},
        jdks,
    },
    server::{NODELAY, SERVICE},
    start::{INCONCLUSIVE, Running, covered, hugewise, run, run_command, says, wait_until},
    systemd::Systemd,
    trial,
};

const UNIT: &str = "app.service";
/// An option of the unit, which must remain.
const KEPT: &str = "-Dkept=$1";
const DROP_INS: &str = "/run/systemd/system/app.service.d";

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Thp, Pool, Java, Namespaces, Need::Systemd];
    vec![
        trial("unit: its JVM gets its pages in each run, and is as before at the end", &needs, compared),
        trial("unit: it is as before if hugewise is killed", &needs, killed),
        trial(
            "unit: restore puts it back if hugewise and its guard are killed",
            &needs,
            killed_with_its_guard,
        ),
        trial("unit: run restarts it on huge pages, and --undo as it was", &needs, restarted),
        trial("unit: options that do not suit it are refused", &[Root], refused),
    ]
}

/// A systemd with one service, which runs a JVM.
struct Booted {
    systemd: Systemd,
    classes: TempDir,
    port: u16,
}

impl Booted {
    fn boot() -> Result<Booted, Box<dyn Error>> {
        let classes = compiled("Service", SERVICE)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let java = jdks().first().ok_or("no JDK")?.java.display().to_string();
        let options =
            format!("-Xms256m -Xmx256m -XX:+UseSerialGC {NODELAY} -cp {}", classes.path().display());
        let text = format!(
            "[Unit]\nDefaultDependencies=no\n[Service]\nEnvironment='JAVA_TOOL_OPTIONS={KEPT}'\n\
             ExecStart={java} {options} Service serve {port}\n"
        );
        let systemd = Systemd::boot(UNIT, &text)?;
        systemd.systemctl(&["start", UNIT])?;
        Ok(Booted { systemd, classes, port })
    }

    /// The options of the service's JVM; empty while it does not run.
    fn options(&self) -> Result<String, Box<dyn Error>> {
        let pid = self.systemd.systemctl(&["show", "--property=MainPID", "--value", UNIT])?;
        let environ = format!("/proc/{}/environ", pid.trim());
        let environment = self.systemd.output("cat", &[&environ]).unwrap_or_default();
        let options = environment.split('\0').find_map(|entry| entry.strip_prefix("JAVA_TOOL_OPTIONS="));
        Ok(options.unwrap_or_default().to_owned())
    }

    fn compare(&self, options: &[&str], driver: &[&str]) -> Command {
        let port = self.port.to_string();
        let mut inner = hugewise(&["compare", "--json", "--rounds", "1", "--server", UNIT, "--ready", &port]);
        self.systemd.inside(inner.args(options).arg("--").args(driver))
    }
}

fn compared() -> TestResult {
    let booted = Booted::boot()?;
    assert_eq!(booted.options()?, KEPT);
    let (java, port) = (jdks().first().ok_or("no JDK")?.java.display().to_string(), booted.port.to_string());
    let classes = booted.classes.path().display().to_string();
    let driver = [&java, "-cp", &classes, "Service", "drive", &port, "100"];
    let options = ["-b", "base,thp,hugetlb", "--operations", "requests: ([0-9]+)"];
    let ran = run_command(&|| booted.compare(&options, &driver))?.ended_with(INCONCLUSIVE)?;
    let comparison = ran.comparison()?;
    covered(&comparison, "thp", 0.8)?;
    covered(&comparison, "hugetlb", 0.8)?;
    for round in &comparison.rounds {
        let cpu = round.figures.get("cpu_per_operation").copied().ok_or("no figure")?;
        assert!(cpu > 0.0, "of the service: {round:#?}");
    }
    assert!(comparison.notes.iter().all(|note| !note.contains("removed")), "{:?}", comparison.notes);
    assert_eq!(booted.options()?, KEPT);
    assert!(booted.systemd.output("ls", &[DROP_INS]).is_err());
    Ok(())
}

fn killed() -> TestResult {
    let booted = Booted::boot()?;
    let running = Running::start(&mut booted.compare(&["-b", "base"], &["sleep", "1000"]))?;
    let on_base = format!("{KEPT} -XX:-UseLargePages");
    wait_until("the service runs on base", || Ok(booted.options()? == on_base))?;
    let nsenter = running.child.id();
    let hugewise = fs::read_to_string(format!("/proc/{nsenter}/task/{nsenter}/children"))?;
    Command::new("sh").args(["-c", "kill -s KILL \"$0\"", hugewise.trim()]).status()?;
    running.wait()?;
    wait_until("the service is as before", || Ok(booted.options()? == KEPT))?;
    assert!(booted.systemd.output("ls", &[DROP_INS]).is_err());
    Ok(())
}

/// As by the out-of-memory killer for a control group, or the end of a session.
fn killed_with_its_guard() -> TestResult {
    let booted = Booted::boot()?;
    let running = Running::start(&mut booted.compare(&["-b", "base"], &["sleep", "1000"]))?;
    let on_base = format!("{KEPT} -XX:-UseLargePages");
    wait_until("the service runs on base", || Ok(booted.options()? == on_base))?;
    // SIGTERM and SIGHUP do not end the guards, which have work to do.
    let script =
        "for signal in TERM HUP INT; do kill -s $signal $(pgrep -f '[s]erver-guard'); done; sleep 0.3
                  pgrep -f '[s]erver-guard' || exit 1
                  kill -s KILL $(pgrep -f '[h]ugewise (compare|bench)')";
    booted.systemd.output("bash", &["-c", script])?;
    running.wait()?;
    assert_eq!(booted.options().unwrap_or_default(), on_base, "something has put it back");
    let restored = run_command(&|| booted.systemd.inside(&hugewise(&["restore"])))?.ended_with(0)?;
    says(&restored.stdout, &["was killed during: compare", "Restarted: app.service"])?;
    wait_until("the service is as before", || Ok(booted.options()? == KEPT))?;
    assert!(booted.systemd.output("ls", &[DROP_INS]).is_err());
    let again = run_command(&|| booted.systemd.inside(&hugewise(&["restore"])))?.ended_with(0)?;
    says(&again.stdout, &["Nothing to restore"])
}

fn restarted() -> TestResult {
    let booted = Booted::boot()?;
    let report = booted.classes.path().join("report.json").display().to_string();
    let run_unit = |options: &[&str]| {
        run_command(&|| booted.systemd.inside(&hugewise(&[&["run", "--unit", UNIT][..], options].concat())))
    };
    let started = run_unit(&["--report", &report])?.ended_with(0)?;
    says(
        &started.stderr,
        &["backing thp", "until the machine is started again", "--undo --unit app.service'"],
    )?;
    assert_eq!(booted.options()?, format!("{KEPT} -XX:+UseTransparentHugePages"));
    let reported: Value = serde_json::from_str(&fs::read_to_string(report)?)?;
    let heap = &reported["regions"][0];
    assert!(heap["name"] == "heap" && reported["outcome"] == "ready", "{reported:#}");
    assert!(heap["coverage"].as_f64().is_some_and(|coverage| coverage > 0.8), "{reported:#}");
    // A comparison leaves it as it found it.
    let compared = run_command(&|| booted.compare(&["-b", "base"], &["true"]))?.ended_with(0)?;
    covered(&compared.comparison()?, "base", 0.0)?;
    assert_eq!(booted.options()?, format!("{KEPT} -XX:+UseTransparentHugePages"));
    let again = run_unit(&["--backing", "base"])?.ended_with(0)?;
    says(&again.stderr, &["removed -XX:+UseTransparentHugePages", "heap"])?;
    assert_eq!(booted.options()?, format!("{KEPT} -XX:-UseLargePages"));
    says(&run_unit(&["--undo"])?.ended_with(0)?.stderr, &["restarted as it was"])?;
    assert_eq!(booted.options()?, KEPT);
    assert!(booted.systemd.output("ls", &[DROP_INS]).is_err());
    says(&run_unit(&["--undo"])?.ended_with(2)?.stderr, &["was not restarted by 'hugewise run --unit'"])
}

fn refused() -> TestResult {
    let wrong = run(&["run", "--unit", "app.socket"])?.ended_with(2)?;
    says(&wrong.stderr, &["expected the name of a systemd service"])?;
    let base = ["compare", "--rounds", "1", "-b", "base", "--server", UNIT];
    for (options, said) in [
        (&["--ready", "{port}"][..], "give the port of the service"),
        (&["--ready", "started"], "give the port of the service"),
        (&["--ready", "80", "--user", "daemon"], "the unit sets its user"),
        (&["--ready", "80", "--stop-timeout", "5"], "the unit sets its user and its timeout"),
    ] {
        let ran = run(&[&base[..], options, &["--", "true"]].concat())?.ended_with(2)?;
        says(&ran.stderr, &[said, UNIT])?;
    }
    Ok(())
}
