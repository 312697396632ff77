//! Shell scripts under `run` and `compare`: their JVMs get the flags through a variable, and their heaps are sampled.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::Value;

use crate::{
    TestResult, Trial,
    compiling::compiled,
    needs::{
        Need::{Java, Root as IsRoot, Thp},
        jdks,
    },
    start::{INCONCLUSIVE, Running, covered, hugewise, rounds, run_command, says},
    trial,
};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("script: its JVMs get their flags through a variable", &[Java, Thp], of_script),
        trial("script: compare samples the heap of its JVM", &[IsRoot, Thp, Java], compared),
    ]
}

/// Ends when the report exists.
const WAIT: &str = "
public class Wait {
    public static void main(String[] arguments) throws Exception {
        for (int wait = 0; wait < 6000 && new java.io.File(arguments[0]).length() == 0; wait++) Thread.sleep(100);
    }
}
";

fn of_script() -> TestResult {
    let jdk = jdks().first().cloned().ok_or("no JDK")?;
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let classes = compiled("Wait", WAIT)?;
    let java = jdk.java.display();
    let heap = "-Xms64m -Xmx64m -XX:+UseSerialGC -XX:+AlwaysPreTouch";
    let (own, report) = (format!("-cp {} Wait", classes.path().display()), path("report.json"));
    let script = format!(
        "#!/bin/sh\necho \"got $CATALINA_OPTS\"; env\n\
         {java} -Xms32m -Xmx32m -XX:+UseSerialGC -XX:+AlwaysPreTouch {own} \"$1\" &\n\
         {java} {heap} $CATALINA_OPTS {own} \"$1\" &\nwait\n"
    );
    executable(&path("catalina.sh"), &script)?;
    let options =
        ["run", "--within", "6", "--report", &report, "--", "nice", "-n", "0", &path("catalina.sh"), &report];
    let mut call = hugewise(&options);
    call.env("CATALINA_OPTS", "-Xss1m -XX:+UseLargePages").env_remove("GLIBC_TUNABLES");
    let ran = Running::start(&mut call)?.wait()?.ended_with(0)?;
    says(&ran.stdout, &["got -Xss1m -XX:+UseTransparentHugePages\n"])?;
    assert!(!ran.stdout.contains("GLIBC_TUNABLES"), "{}", ran.stdout);
    let said = "CATALINA_OPTS of catalina.sh has -XX:+UseTransparentHugePages for the JVM of Tomcat";
    says(&ran.stderr, &[said, "removed -XX:+UseLargePages of CATALINA_OPTS"])?;
    heaps(Path::new(&report))
}

fn executable(file: &str, script: &str) -> TestResult {
    fs::write(file, script)?;
    Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o755))?)
}

fn compared() -> TestResult {
    let jdk = jdks().first().cloned().ok_or("no JDK")?;
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let sleep =
        "public class Sleep { public static void main(String[] a) throws Exception { Thread.sleep(1000); } }";
    let classes = compiled("Sleep", sleep)?;
    let options = "-Xms64m -Xmx64m -XX:+UseSerialGC -XX:+AlwaysPreTouch";
    // A child of the script, and no exec.
    let line = format!(
        "#!/bin/sh\n{} {options} $CATALINA_OPTS -cp {} Sleep\nexit 0\n",
        jdk.java.display(),
        classes.path().display()
    );
    executable(&path("own.sh"), &line)?;
    let make = || hugewise(&["compare", "--json", "--rounds", "1", "-b", "base,thp", "--", &path("own.sh")]);
    let comparison = run_command(&make)?.ended_with(INCONCLUSIVE)?.comparison()?;
    covered(&comparison, "thp", 0.95)?;
    for round in rounds(&comparison, "base")? {
        assert!(round.coverage.is_some_and(|share| share <= 0.05), "{round:#?}");
    }
    let note = "CATALINA_OPTS of own.sh has -XX:+UseTransparentHugePages for the JVM of Tomcat";
    says(&comparison.notes.join("\n"), &[note])
}

/// The heap with the flag is on huge pages, and the other one is named with its process.
fn heaps(report: &Path) -> TestResult {
    let seen: Value = serde_json::from_str(&fs::read_to_string(report)?)?;
    let regions = seen["regions"].as_array().ok_or("no regions")?;
    let find = |is: &dyn Fn(&str) -> bool| {
        let found = regions.iter().find(|region| region["name"].as_str().is_some_and(is));
        found.cloned().ok_or(format!("{seen:#}"))
    };
    let (heap, other) = (find(&|name| name == "heap")?, find(&|name| name.starts_with("heap of "))?);
    let coverage = |region: &Value| region["coverage"].as_f64().unwrap_or(0.0);
    assert!(coverage(&heap) >= 0.95 && heap["resident_bytes"].as_u64() >= Some(60_000_000), "{seen:#}");
    assert!(coverage(&other) < 0.05, "{seen:#}");
    assert_eq!(seen["options_taken"], true, "of the JVM with most memory: {seen:#}");
    says(&seen["notes"].to_string(), &["did not get -XX:+UseTransparentHugePages"])
}
