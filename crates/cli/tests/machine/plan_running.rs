//! `hugewise plan --pid`: the plan of a running JVM is that of its command line and environment.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    TestResult, Trial,
    needs::{
        Need::{Java, Root},
        jdks,
    },
    start::{Running, hugewise, says, wait_until},
    trial,
};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("plan: a running JVM has the plan of its command line", &[Java], running_jvm),
        trial("plan: the program of another user is not started", &[Root, Java], of_another_user),
    ]
}

const WAIT: &str =
    "public class Wait { public static void main(String[] a) throws Exception { System.in.read(); } }";

fn plan(arguments: &[&str]) -> Result<Value, Box<dyn std::error::Error>> {
    let mut call = hugewise(&[&["plan", "--json"], arguments].concat());
    let planned = Running::start(&mut call)?.wait()?;
    serde_json::from_str(&planned.stdout).map_err(|error| format!("{error}: {planned:#?}").into())
}

fn running_jvm() -> TestResult {
    let jdk = jdks().first().cloned().ok_or("no JDK")?;
    let java = jdk.java.display().to_string();
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("Wait.java"), WAIT)?;
    fs::write(folder.path().join("heap"), "-Xmx96m")?;
    // A child of a shell, with options from an argument file and from a variable.
    let script = format!("{java} @heap -XX:+UseSerialGC Wait.java; exit 0");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(folder.path()).env("JAVA_TOOL_OPTIONS", "-Xms48m");
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let pid = child.id().to_string();
    wait_until("the JVM runs", || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let java = children.split_whitespace().next().unwrap_or(&pid).to_owned();
        Ok(fs::read_to_string(format!("/proc/{java}/maps"))?.contains("classes.jsa"))
    })?;
    let running = plan(&["--pid", &pid]);
    drop(child.stdin.take());
    child.wait()?;
    let running = running?;
    let line = ["--", "env", "JAVA_TOOL_OPTIONS=-Xms48m", &java, "-Xmx96m", "-XX:+UseSerialGC", "Main"];
    let given = plan(&line)?;
    for value in ["regions", "heap", "java"] {
        let without_path = |plan: &Value| {
            let mut value = plan[value].clone();
            value.as_object_mut().and_then(|java| java.remove("path"));
            value
        };
        assert_eq!(without_path(&running), without_path(&given), "{running:#}");
    }
    assert_eq!(running["pools"][0]["pages_needed"], given["pools"][0]["pages_needed"]);
    says(&running["notes"].to_string(), &["this JVM runs as process"])?;
    let shell = Running::start(&mut hugewise(&["plan", "--pid", &std::process::id().to_string()]))?.wait()?;
    says(&shell.ended_with(2)?.stderr, &["is neither a JVM nor a PostgreSQL or MariaDB server"])
}

/// Its user could have chosen the file and the options for root to start.
fn of_another_user() -> TestResult {
    let jdk = jdks().first().cloned().ok_or("no JDK")?;
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    fs::write(folder.path().join("Wait.java"), WAIT)?;
    let mut java = Command::new(&jdk.java);
    java.args(["-Xmx64m", "Wait.java"]).uid(65534).gid(65534).current_dir(folder.path());
    let mut child = java.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let pid = child.id().to_string();
    let is_jvm = wait_until("the JVM runs", || {
        Ok(fs::read_to_string(format!("/proc/{pid}/maps"))?.contains("libjvm.so"))
    });
    let planned = Running::start(&mut hugewise(&["plan", "--pid", &pid]))?.wait()?;
    drop(child.stdin.take());
    child.kill()?;
    child.wait()?;
    is_jvm?;
    says(&planned.ended_with(2)?.stderr, &["belongs to uid 65534", "sudo -u '#65534' hugewise plan --pid"])
}
