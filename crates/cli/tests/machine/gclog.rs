//! Logs of real JVMs: every collector, with every set of decorations.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use hugewise_jvm::jdks::Jdk;
use regex::Regex;
use serde_json::Value;

use crate::{
    TestResult, Trial,
    compiling::compiled,
    java::knows,
    needs::{Need::Java, jdks},
    start::hugewise,
    trial,
};

/// Causes young and full collections, and concurrent cycles of G1.
const SOURCE: &str = "
public class Churn {
    public static void main(String[] arguments) {
        Object[] kept = new Object[400];
        java.util.Random random = new java.util.Random(1);
        for (int i = 1; i < 12000; i++) {
            byte[] piece = new byte[random.nextInt(64 << 10)];
            if (i % 4 == 0) kept[random.nextInt(kept.length)] = piece;
            if (i % 2000 == 0) kept[random.nextInt(kept.length)] = new byte[2 << 20];
            if (i % 3000 == 0) System.gc();
        }
    }
}
";
const COLLECTORS: [&str; 5] = ["UseSerialGC", "UseParallelGC", "UseG1GC", "UseZGC", "UseShenandoahGC"];
/// Decorations, with the expected clock.
const DECORATIONS: [(&str, Option<&str>); 11] = [
    ("none", None),
    ("uptime,level,tags", Some("uptime")),
    ("uptime", Some("uptime")),
    ("uptimemillis,tags", Some("uptime")),
    ("uptimenanos", Some("uptime")),
    ("timemillis,pid,tid", Some("unix")),
    ("timenanos,level", Some("monotonic")),
    ("time,hostname,level,tags", Some("unix")),
    ("time,pid,tid", Some("unix")),
    ("hostname,pid,tid,level,tags", None),
    (
        "time,utctime,uptime,timemillis,uptimemillis,timenanos,uptimenanos,hostname,pid,tid,level,tags",
        Some("uptime"),
    ),
];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for jdk in jdks().into_iter().filter(|jdk| jdk.major >= 9) {
        for collector in COLLECTORS.into_iter().filter(|collector| knows(&jdk, collector)) {
            let jdk = jdk.clone();
            let name =
                format!("JDK {}: gclog reads what {collector} logs, with any decorations", jdk.version);
            trials.push(reading(name, move || is_read(&jdk, collector)));
        }
        let name = format!("JDK {}: gclog reads the rotation of two JVMs", jdk.version);
        let rotated = jdk.clone();
        trials.push(reading(name, move || rotation_is_read(&rotated)));
        let name = format!("JDK {}: gclog reads decimal commas", jdk.version);
        trials.push(match has_locales() {
            true => reading(name, move || commas_are_read(&jdk)),
            false => Trial::new(name, Some("no localedef".to_owned()), || Ok(())),
        });
    }
    if trials.is_empty() {
        trials.push(trial("gclog reads the logs of JVMs", &[Java], || Ok(())));
    }
    trials
}

/// A test that neither reads nor changes settings, and does not take the lock for them.
fn reading(name: String, test: impl FnOnce() -> TestResult + Send + 'static) -> Trial {
    Trial::new(name, None, test)
}

/// One JVM writes all logs, so all must give the same pauses.
fn is_read(jdk: &Jdk, collector: &str) -> TestResult {
    let folder = compiled("Churn", SOURCE)?;
    let log = |n: usize| folder.path().join(format!("gc{n}.log"));
    let mut java = Command::new(&jdk.java);
    java.arg(format!("-XX:+{collector}")).args(["-Xmx96m", "-cp"]).arg(folder.path());
    for (n, (decorations, _)) in DECORATIONS.iter().enumerate() {
        java.arg(format!("-Xlog:gc*,safepoint*:file={}:{decorations}:filecount=0", log(n).display()));
    }
    let ran = java.arg("Churn").output()?;
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let expected = by_regular_expressions(&log(0))?;
    assert!(expected.len() > 4, "too few pauses for the test: {}", expected.len());
    let mut safepoints = None;
    for (n, (decorations, clock)) in DECORATIONS.iter().enumerate() {
        let ran = hugewise(&["gclog", "--json", &log(n).display().to_string()]).output()?;
        let json: Value = serde_json::from_slice(&ran.stdout)?;
        assert_eq!(json["unread_lines"], 0, "{decorations}: {}", json["unread"]);
        assert_eq!((&json["clock"], &json["jvms"]), (&Value::from(*clock), &1.into()), "{decorations}");
        let found: Vec<PauseFigures> =
            json["pauses"].as_array().ok_or("no pauses")?.iter().map(pause_figures).collect();
        assert_eq!(found, expected, "{decorations}");
        let count = json["safepoints"]["time_to_safepoint"]["count"].as_u64();
        assert!(count >= Some(4), "{decorations}: {count:?} safepoints");
        assert_eq!(*safepoints.get_or_insert(count), count, "{decorations}");
    }
    Ok(())
}

/// Whether locales can be generated.
fn has_locales() -> bool {
    Path::new("/usr/share/i18n/locales/de_DE").exists()
        && Command::new("localedef").arg("--version").output().is_ok_and(|ran| ran.status.success())
}

/// Decimal commas, which a JVM writes in locales that have them.
fn commas_are_read(jdk: &Jdk) -> TestResult {
    let folder = compiled("Churn", SOURCE)?;
    let locale = folder.path().join("de_DE.UTF-8");
    let made = Command::new("localedef").args(["-i", "de_DE", "-f", "UTF-8"]).arg(locale).output()?;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let log = |name: &str| folder.path().join(name);
    let mut java = Command::new(&jdk.java);
    java.args(["-XX:+UseG1GC", "-Xmx96m", "-cp"]).arg(folder.path());
    for (name, decorations) in [("none.log", "none"), ("uptime.log", "uptime,level,tags")] {
        java.arg(format!("-Xlog:gc*,safepoint*:file={}:{decorations}:filecount=0", log(name).display()));
    }
    let ran = java.arg("Churn").env("LOCPATH", folder.path()).env("LC_ALL", "de_DE.UTF-8").output()?;
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = fs::read_to_string(log("none.log"))?;
    let comma = Regex::new(r"(\d),(\d+)(ms|s)\b")?;
    assert!(comma.is_match(&text), "this JVM wrote no commas: {text}");
    fs::write(log("points.log"), comma.replace_all(&text, "$1.$2$3").as_bytes())?;
    let expected = by_regular_expressions(&log("points.log"))?;
    assert!(expected.len() > 4 && expected.iter().any(|pause| pause.1 > 0), "{expected:?}");
    for (name, clock) in [("none.log", None), ("uptime.log", Some("uptime"))] {
        let ran = hugewise(&["gclog", "--json", &log(name).display().to_string()]).output()?;
        let json: Value = serde_json::from_slice(&ran.stdout)?;
        assert_eq!((&json["unread_lines"], &json["clock"]), (&0.into(), &Value::from(clock)), "{json:#}");
        let found: Vec<PauseFigures> =
            json["pauses"].as_array().ok_or("no pauses")?.iter().map(pause_figures).collect();
        assert_eq!(found, expected, "{name}");
    }
    Ok(())
}

/// Two JVMs, one after the other, write to the same rotation.
fn rotation_is_read(jdk: &Jdk) -> TestResult {
    let folder = compiled("Churn", SOURCE)?;
    let logs = folder.path().join("logs");
    fs::create_dir(&logs)?;
    for _ in 0..2 {
        let mut java = Command::new(&jdk.java);
        java.args(["-XX:+UseParallelGC", "-Xmx96m", "-cp"]).arg(folder.path());
        let log = logs.join("gc.log");
        java.arg(format!("-Xlog:gc*:file={}:uptime,tags:filecount=60,filesize=4k", log.display()));
        assert!(java.arg("Churn").output()?.status.success());
    }
    let mut command = hugewise(&["gclog", "--json"]);
    let (mut files, mut lines) = (0, 0);
    let pause = Regex::new(r"(?m)\] GC\(\d+\) Pause .* [\d.]+ms$")?;
    for file in fs::read_dir(&logs)? {
        let file = file?.path();
        lines += pause.find_iter(&fs::read_to_string(&file)?).count();
        command.arg(file);
        files += 1;
    }
    assert!(files > 4, "{files} files are no rotation");
    let json: Value = serde_json::from_slice(&command.output()?.stdout)?;
    let count = Value::from(lines);
    let totals = &json["totals"];
    assert_eq!((&totals["pauses"], &totals["pauses_with_cpu"]), (&count, &count), "{}", json["files"]);
    assert_eq!((&json["jvms"], &json["unread_lines"]), (&2.into(), &0.into()));
    let mut last = (0, 0.0);
    for pause in json["pauses"].as_array().ok_or("no pauses")? {
        let now = (pause["jvm"].as_u64().unwrap_or(9), pause["start_seconds"].as_f64().unwrap_or(-1.0));
        // The start is the end less the duration, and the log has the end in whole milliseconds.
        let in_order = last.0 < now.0 || (last.0 == now.0 && last.1 <= now.1 + 0.001);
        assert!(in_order, "{now:?} after {last:?}, in {}", json["files"]);
        last = now;
    }
    Ok(())
}

/// Id, duration in µs, and user, system and real time in ms.
type PauseFigures = (u64, i64, Option<[i64; 3]>);

fn pause_figures(pause: &Value) -> PauseFigures {
    let whole = |name: &str, unit: f64| pause[name].as_f64().map(|value| (value * unit).round() as i64);
    let cpu = || Some([whole("user_seconds", 1e3)?, whole("sys_seconds", 1e3)?, whole("real_seconds", 1e3)?]);
    (pause["gc_id"].as_u64().unwrap_or(u64::MAX), whole("duration_seconds", 1e6).unwrap_or(-1), cpu())
}

/// A slower implementation of the reader. CPU time belongs to a pause that ended since the last concurrent
/// phase of its id.
fn by_regular_expressions(log: &Path) -> Result<Vec<PauseFigures>, Box<dyn std::error::Error>> {
    let pause = Regex::new(r"^GC\((\d+)\) (?:[yYO]: )?Pause .*?([\d.]+)ms$")?;
    let cpu = Regex::new(r"^GC\((\d+)\) User=([\d.]+)s Sys=([\d.]+)s Real=([\d.]+)s$")?;
    let concurrent = Regex::new(r"^GC\((\d+)\) Concurrent .*ms$")?;
    let mut found: Vec<PauseFigures> = Vec::new();
    let mut last: BTreeMap<u64, Option<usize>> = BTreeMap::new();
    for line in fs::read_to_string(log)?.lines() {
        if let Some(of) = pause.captures(line) {
            let id = of[1].parse()?;
            last.insert(id, Some(found.len()));
            found.push((id, (of[2].parse::<f64>()? * 1e3).round() as i64, None));
        } else if let Some(of) = concurrent.captures(line) {
            last.insert(of[1].parse()?, None);
        } else if let Some(of) = cpu.captures(line) {
            if let Some(at) = last.get_mut(&of[1].parse()?).and_then(Option::take) {
                let ms = |n: usize| of[n].parse::<f64>().map(|s| (s * 1e3).round() as i64);
                found[at].2 = Some([ms(2)?, ms(3)?, ms(4)?]);
            }
        }
    }
    Ok(found)
}
