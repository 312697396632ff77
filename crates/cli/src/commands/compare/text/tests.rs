//! Tests of the text report.

use super::{
    super::samples::{against_itself, extreme, java, live, native, nothing, parameter_list, troubled},
    *,
};
use crate::output::terminal::Color;

fn plain(comparison: &Comparison) -> String {
    text(comparison, &Terminal::new(Color::Never))
}

fn line<'a>(text: &'a str, start: &str) -> &'a str {
    text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_default()
}

#[test]
fn every_report_fits_the_terminal() {
    for width in [60, 80, 100, 200] {
        for sample in
            [native(), java(), live(), parameter_list(), troubled(), against_itself(), nothing(), extreme()]
        {
            let text = text(&sample, &Terminal::new(Color::Never).with_width(width));
            println!("{text}\n{}", "=".repeat(width));
            // Commands are not wrapped.
            for line in text.lines().filter(|line| !line.contains("$ ")) {
                assert!(line.chars().count() <= width, "{}: {line}", line.chars().count());
            }
        }
    }
}

#[test]
fn a_backing_that_fell_back_shows_what_it_got() {
    let text = plain(&troubled());
    let row = line(&text, "hugetlb:2MiB");
    assert!(row.contains("31 %") && row.contains("1 of 5") && !row.contains("–"), "{row}");
}

#[test]
fn a_row_has_coverage_ratio_and_verdict() {
    let text = plain(&native());
    let thp = line(&text, "thp");
    for part in ["7 of 7", "0.5", "faster: 4", "% lower"] {
        assert!(thp.contains(part), "{part}: {thp}");
    }
    assert!(line(&text, "base").contains("the reference"));
    assert!(line(&text, "first touch (ms)").contains("−"));
    assert!(text.contains("520 pages, and back to 0"));
    assert!(text.contains("could not be counted"));
}

#[test]
fn memory_is_in_iec_units_and_shares_in_percent() {
    let text = plain(&java());
    assert!(line(&text, "peak memory (GiB)").contains("4.2"), "{text}");
    assert!(line(&text, "gc sys share (%)").contains("8."));
    assert!(line(&text, "shm:2MiB").contains("no difference"));
    assert!(text.contains("between "), "{text}");
}

#[test]
fn a_parameter_list_is_one_table() {
    let text = plain(&parameter_list());
    assert_eq!(text.lines().filter(|line| line.contains("verdict")).count(), 1);
    assert!(line(&text, "4g").contains("the reference"));
    assert!(line(&text, "heap").contains("backing"));
}

#[test]
fn failures_are_reported_with_the_next_step() {
    let text = plain(&troubled());
    for part in ["inconclusive", "fell back", "skipped", "hugepagesz=1G", "1000 pages of 2MiB", "faster: "] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.contains("% higher"), "a throughput that rose");
}

#[test]
fn a_hostile_name_cannot_drive_the_terminal() {
    assert!(!plain(&troubled()).contains(|c: char| c.is_control() && c != '\n'));
}

#[test]
fn the_same_backing_twice_is_distinguished() {
    let text = plain(&against_itself());
    assert!(line(&text, "thp (A)").contains("the reference"));
    assert!(line(&text, "thp (B)").contains("no difference"));
}

#[test]
fn colours_stand_only_around_the_verdict() {
    let text = text(&native(), &Terminal::new(Color::Always));
    assert!(text.contains("\x1b[32mfaster: "));
}
