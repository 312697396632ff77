//! Services whose users control their processes: what `run --unit` writes comes from the configuration.

use std::{
    error::Error,
    fs,
    os::unix::fs::{PermissionsExt, chown},
};

use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    compiling::compiled,
    needs::{
        Need::{self, Java, Namespaces, Root, Thp},
        jdks,
    },
    start::{EndedProcess, hugewise, run_command, says, wait_until},
    systemd::Systemd,
    trial,
};

/// The user `nobody`.
const USER: u32 = 65534;
const ON_THP: &str = "-XX:+UseTransparentHugePages";
/// A unit of a name with an escaped character.
const ESCAPED: &str = r"a\x2db.service";
/// As a unit quotes it, and as it is.
const VALUE: (&str, &str) =
    (r#"-Da="x  y" -Db=$e`f -Dc=100%% -Dd=g\\h"#, r#"-Da="x  y" -Db=$e`f -Dc=100% -Dd=g\h"#);
const STAY: &str = "public class Stay { public static void main(String[] a) throws Exception { \
                    Thread.sleep(1000000); } }";

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Thp, Java, Namespaces, Need::Systemd];
    let name = "unit: run takes variables from files of root only, and a JVM of the unit's user";
    vec![trial(name, &needs, configured)]
}

/// A folder with programs and files of variables for services.
fn files() -> Result<TempDir, Box<dyn Error>> {
    let folder = compiled("Stay", STAY)?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let file = |name: &str, text: &str, mode| {
        let path = folder.path().join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
    };
    let java = jdks().first().ok_or("no JDK")?.java.display().to_string();
    let java = format!("{java} -Xmx64m -XX:+UseSerialGC -cp {} Stay", folder.path().display());
    file("java", &format!("#!/bin/sh\nexec {java}\n"), 0o755)?;
    file("of-root.env", "JDK_JAVA_OPTIONS='-Dfrom=file -XX:-UseLargePages'\n", 0o600)?;
    file("of-user.env", "JAVA_TOOL_OPTIONS=-Dstolen=1\n", 0o644)?;
    chown(folder.path().join("of-user.env"), Some(USER), None)?;
    Ok(folder)
}

fn configured() -> TestResult {
    let folder = files()?;
    let at = folder.path().display();
    let (java, head) = (format!("ExecStart={at}/java"), "[Unit]\nDefaultDependencies=no\n[Service]\n");
    let quoted = format!("{head}User=nobody\nEnvironment='JAVA_TOOL_OPTIONS={}'\n{java}\n", VALUE.0);
    let files = |name: &str| {
        format!("{head}User=nobody\nEnvironmentFile=-/none\nEnvironmentFile={at}/{name}\n{java}\n")
    };
    let mixed = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let mixed = format!("{head}ExecStart=/bin/sh -c '{mixed} {at}/java & exec sleep 1000'\n");
    let units = [
        ("file.service", &files("of-root.env")),
        ("owned.service", &files("of-user.env")),
        ("mixed.service", &mixed),
        (ESCAPED, &quoted),
    ];
    let booted = Systemd::boot_with(&units.map(|(name, text)| (name, text.as_str())))?;
    for (unit, _) in &units {
        booted.systemctl(&["start", unit])?;
        wait_until("its JVM runs", || {
            let pids =
                booted.output("cat", &[&format!("/sys/fs/cgroup/system.slice/{unit}/cgroup.procs")])?;
            let maps = |pid: &str| booted.output("cat", &[&format!("/proc/{pid}/maps")]).unwrap_or_default();
            Ok(pids.split_whitespace().any(|pid| maps(pid).contains("classes.jsa")))
        })?;
    }
    let run = |unit: &str| -> Result<EndedProcess, Box<dyn Error>> {
        run_command(&|| booted.inside(&hugewise(&["run", "--quiet", "--backing", "thp", "--unit", unit])))
    };
    let written = |unit: &str| {
        booted.output("cat", &[&format!("/run/systemd/system/{unit}.d/98-hugewise-run.env")]).ok()
    };

    run("file.service")?.ended_with(0)?;
    let expected = format!("JDK_JAVA_OPTIONS=\"-Dfrom=file\"\nJAVA_TOOL_OPTIONS=\"{ON_THP}\"\n");
    assert_eq!(written("file.service"), Some(expected));

    says(&run("owned.service")?.ended_with(2)?.stderr, &["of-user.env", "belongs to uid 65534"])?;
    says(&run("mixed.service")?.ended_with(2)?.stderr, &["runs as uid 0", "as uid 65534"])?;
    assert_eq!((written("owned.service"), written("mixed.service")), (None, None));

    let options = || -> Result<String, Box<dyn Error>> {
        let pid = booted.systemctl(&["show", "--property=MainPID", "--value", ESCAPED])?;
        let variables = booted.output("cat", &[&format!("/proc/{}/environ", pid.trim())])?;
        let options = variables.split('\0').find_map(|entry| entry.strip_prefix("JAVA_TOOL_OPTIONS="));
        Ok(options.unwrap_or_default().to_owned())
    };
    assert_eq!(options()?, VALUE.1);
    run(ESCAPED)?.ended_with(0)?;
    assert_eq!(options()?, format!("{} {ON_THP}", VALUE.1));
    Ok(())
}
