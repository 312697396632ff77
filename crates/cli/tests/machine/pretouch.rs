//! `bench pretouch`: readings from the kernel and from JVMs. No test judges a time.

use std::{fs, thread, time::Duration};

use serde_json::Value;

use crate::{
    TestResult, Trial,
    needs::Need::{Free, Java, Pool, Root, Thp},
    start::{Running, hugewise, left_running, run, says},
    trial,
};

pub const QUICK_RUN: [&str; 8] =
    ["bench", "pretouch", "--bytes", "16MiB,32MiB", "--repetitions", "3", "--floor", "64MiB"];

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Pool, Thp, Free(256)];
    let with_java = [Root, Pool, Thp, Free(1024), Java];
    vec![
        trial("bench pretouch: coverage, release and a prediction for each backing", &needs, all_backings),
        trial("bench pretouch: the heap of every JVM, by its own log", &with_java, every_jvm),
        trial("bench pretouch: times over chunks are drawn", &needs, a_plot),
        trial("bench pretouch: sizes that do not fit are skipped", &[Root], too_large),
        trial("bench pretouch: Ctrl-C leaves nothing behind", &needs, interrupted),
    ]
}

fn json(arguments: &[&str]) -> Result<Value, Box<dyn std::error::Error>> {
    let ran = run(&[&QUICK_RUN[..], arguments, &["--json"]].concat())?.ended_with(0)?;
    Ok(serde_json::from_str(&ran.stdout)?)
}

/// Every process of every row got the requested pages, and reports its times.
fn hold(rows: &[Value]) -> TestResult {
    for row in rows {
        let samples = row["samples"].as_array().ok_or("no samples")?;
        assert_eq!(samples.len(), 3, "{row}");
        for sample in samples {
            let share = sample["coverage"].as_f64().ok_or("no coverage")?;
            let right = if row["backing"] == "base" { share == 0.0 } else { share >= 0.8 };
            assert!(right, "coverage: {row}");
            assert!(sample["seconds"].as_f64() > Some(0.0) && sample["fallbacks"].is_u64(), "{row}");
            assert!(sample["release_seconds"].as_f64() > Some(0.0), "{row}");
            assert!(sample["threads"].as_u64() <= row["threads"].as_u64(), "{row}");
        }
    }
    Ok(())
}

fn all_backings() -> TestResult {
    let arguments = ["--baselines", "--threads", "1,2", "--predict", "1GiB", "--predict-threads", "2,8"];
    let report = json(&arguments)?;
    assert_eq!(
        (&report["schema"], &report["left_out"]),
        (&"hugewise.pretouch/2".into(), &Value::Array(vec![]))
    );
    let rows = report["rows"].as_array().ok_or("no rows")?;
    // Sizes, backings, threads; methods: hugewise, loop, kernel.
    assert_eq!(rows.len(), 2 * 3 * 2 * 3);
    hold(rows)?;
    let predictions = report["predictions"].as_array().ok_or("no predictions")?;
    assert_eq!(predictions.len(), 3 * 2);
    for prediction in predictions.iter().map(|row| &row["prediction"]) {
        let [low, high] = ["low_seconds", "high_seconds"].map(|end| prediction[end].as_f64());
        assert!(low > Some(0.0) && low < high, "{prediction}");
        assert_eq!(prediction["seconds"].is_null(), prediction["threads"] == 8, "{prediction}");
    }
    let lines = report["model"]["lines"].as_array().map(Vec::len);
    assert_eq!(lines, Some(3 * 2), "{}", report["model"]);
    Ok(())
}

fn every_jvm() -> TestResult {
    let report = json(&["--threads", "2", "--chunk", "auto,64KiB", "--jvm"])?;
    let jvms = report["jvms"].as_array().map_or(0, Vec::len);
    assert!(jvms > 0, "{report}");
    let rows = report["rows"].as_array().ok_or("no rows")?;
    let of_jvms: Vec<Value> = rows.iter().filter(|row| row["by"]["jvm"].is_u64()).cloned().collect();
    assert_eq!(of_jvms.len(), jvms * 2 * 3 * 2, "sizes, backings, chunks: {}", report["left_out"]);
    hold(rows)?;
    assert_eq!(report["advice"].as_array().map(Vec::len), Some(jvms * 3), "for each backing");
    Ok(())
}

fn a_plot() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().display().to_string();
    let ran =
        run(&[&QUICK_RUN[..], &["-b", "base,thp", "-t", "1", "-c", "auto,2MiB,8MiB", "--plot", &path]]
            .concat())?;
    ran.ended_with(0)?;
    for size in ["16MiB", "32MiB"] {
        let svg = fs::read_to_string(folder.path().join(format!("pretouch-{size}-1-thread.svg")))?;
        says(&svg, &["<svg", "base", "thp", "hugewise", "chunk"])?;
    }
    Ok(())
}

fn too_large() -> TestResult {
    let ran = run(&["bench", "pretouch", "-b", "base", "--bytes", "1TiB,2TiB"])?.ended_with(1)?;
    says(&ran.stdout, &["skipped 2TiB on base", "--floor", "no model: "])
}

fn interrupted() -> TestResult {
    let long = ["bench", "pretouch", "--bytes", "64MiB", "--repetitions", "1000", "--floor", "64MiB"];
    let running = Running::holding_the_journal(&|| hugewise(&long))?;
    thread::sleep(Duration::from_millis(400));
    running.signal("INT")?;
    let ran = running.wait()?.ended_with(130)?;
    says(&ran.stderr, &["interrupted", "all settings are restored"])?;
    assert_eq!((ran.stdout.as_str(), left_running()), ("", Vec::new()));
    Ok(())
}
