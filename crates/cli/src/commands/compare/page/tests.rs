//! Tests of the page.

use std::{env, fs, path::Path};

use super::{
    super::samples::{against_itself, extreme, java, live, native, nothing, parameter_list, troubled},
    *,
};

fn page_of(comparison: &Comparison) -> String {
    html(comparison).unwrap_or_else(|error| format!("failed: {error:#}"))
}

/// Also writes the pages to the folder that HUGEWISE_SAMPLES names, for visual inspection.
#[test]
fn every_sample_renders() {
    for (name, sample) in [
        ("native", native()),
        ("java", java()),
        ("list", parameter_list()),
        ("troubled", troubled()),
        ("aa", against_itself()),
        ("nothing", nothing()),
        ("extreme", extreme()),
        ("live", live()),
    ] {
        let page = page_of(&sample);
        assert!(
            page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"),
            "{name}: {page}"
        );
        if let Some(folder) = env::var_os("HUGEWISE_SAMPLES") {
            let written = fs::write(Path::new(&folder).join(format!("{name}.html")), page);
            assert!(written.is_ok(), "{written:?}");
        }
    }
}

#[test]
fn a_live_comparison_has_its_turns_on_a_time_line() {
    let sample = live();
    let page = page_of(&sample);
    for part in ["8 pairs of turns of 5 s of process 4711", "in each turn", "seconds since the begin"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let without = Comparison { live: None, ..sample };
    assert!(!page_of(&without).contains("seconds since the begin"));
}

#[test]
fn hostile_text_is_escaped_everywhere() {
    let mut comparison = troubled();
    let mut second = comparison.cases[0].clone();
    second.parameters.insert("mode".to_owned(), "</text><script>alert(4)</script>".to_owned());
    comparison.cases.push(second);
    let again: Vec<_> = comparison
        .rounds
        .iter()
        .cloned()
        .map(|mut round| {
            round.case = 1;
            round
        })
        .collect();
    comparison.rounds.extend(again);
    hugewise_measure::analysis::analyse(&mut comparison);
    for page in [page_of(&troubled()), page_of(&comparison)] {
        for forbidden in ["<script", "<b>", "<i>", "<u>", "\u{1b}", "\u{7}"] {
            assert!(!page.contains(forbidden), "{forbidden} in {page}");
        }
        assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    }
    assert!(page_of(&comparison).contains("&lt;/text&gt;&lt;script&gt;"), "the plot names the value");
}

#[test]
fn a_page_loads_no_other_file() {
    for sample in [native(), parameter_list(), troubled()] {
        let page = page_of(&sample);
        for outside in ["src=", "href=", "url(", "@import", "<link", "<iframe"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}

#[test]
fn the_verdict_comes_first_and_in_plain_words() {
    let page = page_of(&native());
    let verdict = page.find("Faster than base: ").unwrap_or(usize::MAX);
    assert!(verdict < page.find("<table").unwrap_or(0), "{page}");
    assert!(page.contains("% lower)"));
}

#[test]
fn no_plot_is_empty_and_every_color_follows_the_theme() {
    assert!(!page_of(&nothing()).contains("<svg"));
    for sample in [native(), java(), parameter_list(), troubled(), against_itself()] {
        let page = page_of(&sample);
        let (style, body) = page.split_once("</style>").unwrap_or_default();
        assert!(body.contains("<svg"));
        for attribute in ["fill=\"#", "stroke=\"#"] {
            for (at, _) in body.match_indices(attribute) {
                let color = &body[at..at + attribute.len() + 7];
                assert!(style.contains(color), "{color} has no rule");
            }
        }
    }
}

#[test]
fn text_in_plots_can_be_read_on_a_phone() {
    let page = page_of(&java());
    let sizes =
        page.split("font-size=\"").skip(1).filter_map(|rest| rest.split('"').next()?.parse::<f64>().ok());
    for size in sizes {
        // A plot of 340 units is at least 320 pixels wide on a screen of 375.
        assert!(size * 320.0 / 340.0 >= 11.0, "{size}");
    }
}
