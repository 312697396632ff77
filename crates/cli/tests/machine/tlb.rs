//! `bench tlb`: the curves are measured on pages of the stated size, and settings are restored. No test
//! judges a time.

use std::fs;

use serde_json::Value;

use crate::{
    TestResult, Trial,
    needs::Need::{Pool, Root, Thp},
    start::{run, says},
    trial,
};

pub const QUICK_RUN: [&str; 8] = ["bench", "tlb", "--passes", "2", "--most", "160", "--memory", "16MiB"];

pub fn trials() -> Vec<Trial> {
    vec![
        trial("bench tlb: a curve for each page size, its pages proven", &[Root, Pool, Thp], curves),
        trial("bench tlb: a table and a plot", &[Thp], a_table),
        trial("bench tlb: an unavailable backing is named", &[], left_out),
    ]
}

fn curves() -> TestResult {
    let ran = run(&[&QUICK_RUN[..], &["--backing", "base,thp,hugetlb", "--json"]].concat())?.ended_with(0)?;
    let result: Value = serde_json::from_str(&ran.stdout)?;
    assert_eq!(result["schema"], "hugewise.tlb/2");
    let counts = |points: &Value| -> Vec<u64> {
        points.as_array().into_iter().flatten().filter_map(|point| point["pages"].as_u64()).collect()
    };
    let curves = &result["curves"];
    let packed = counts(&curves["packed"]);
    assert_eq!((packed.first(), packed.last()), (Some(&1), Some(&160)));
    let measured = curves["measured"].as_array().ok_or("no curves")?;
    let backings: Vec<_> = measured.iter().filter_map(|measured| measured["backing"].as_str()).collect();
    assert_eq!(backings, ["base", "thp", "hugetlb"], "{curves}");
    assert_eq!(result["findings"].as_array().map(Vec::len), Some(3));
    for measured in measured {
        assert_eq!(measured["coverage"], 1.0, "all pages are of the size: {measured}");
        assert_eq!(counts(&measured["paged"]), packed);
        let huge = measured["backing"] != "base";
        assert_eq!(measured["page_size_bytes"].as_u64() > curves["base_page_size_bytes"].as_u64(), huge);
        assert_eq!(measured["strided"].is_array(), huge);
        for point in measured["paged"].as_array().into_iter().flatten() {
            assert!(
                point["seconds"].as_f64() > Some(0.0) && point["spread_seconds"].as_f64() >= Some(0.0),
                "{point}"
            );
        }
    }
    Ok(())
}

fn a_table() -> TestResult {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tlb.svg");
    let file_name = file.to_str().ok_or("no name")?;
    let ran = run(&[&QUICK_RUN[..], &["--plot", file_name]].concat())?.ended_with(0)?;
    says(&ran.stdout, &["PAGE SIZE", "base: 160 pages of", "coverage 100 %", "ENTRIES", "CPUID"])?;
    let plot = fs::read_to_string(file)?;
    assert!(plot.starts_with("<svg") && plot.contains("adjacent cache lines (thp)"), "{plot}");
    Ok(())
}

fn left_out() -> TestResult {
    let ran = run(&[&QUICK_RUN[..], &["--backing", "base,hugetlb:1TiB"]].concat())?.ended_with(1)?;
    says(&ran.stdout, &["base: 160 pages of", "skipped hugetlb:1TiB: this machine has no pool of 1TiB"])?;
    let ran = run(&[&QUICK_RUN[..], &["--backing", "shm"]].concat())?.ended_with(2)?;
    says(&ran.stderr, &["use --backing hugetlb"])
}
