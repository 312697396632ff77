//! Pauses over time, as SVG embedded in the page.
//!
//! The style sheet of the page maps the fixed colours of the SVG to those of the light or dark theme.

use hugewise_jvm::gc_log::timeline::{Step, Timeline};
use plotters::prelude::*;

use crate::output::drawing::{MUTED, PALETTE, draw, mesh};

const HEIGHT: u32 = 230;
/// Width of a bar in pixels.
const BAR: u32 = 3;

/// User time.
const USER: RGBColor = PALETTE[1];
/// System time.
const SYS: RGBColor = PALETTE[2];

/// The bar of a step: two segments, each with its upper end.
type Bars = fn(&Step) -> [(f64, RGBColor); 2];

/// Longest pause of each step, in milliseconds.
pub fn longest(timeline: &Timeline, width: u32) -> anyhow::Result<String> {
    bars(timeline, width, "longest pause (ms)", |step| {
        let longest = step.longest_ns as f64 / 1e6;
        let color = if step.sys_heavy_pauses > 0 { SYS } else { USER };
        [(longest, color), (longest, color)]
    })
}

/// CPU time of the pauses of each step, in seconds: system time stacked on user time.
pub fn cpu(timeline: &Timeline, width: u32) -> anyhow::Result<String> {
    bars(timeline, width, "CPU time in pauses (s)", |step| {
        let (user, sys) = (step.cpu.user_ns as f64 / 1e9, step.cpu.sys_ns as f64 / 1e9);
        [(user, USER), (user + sys, SYS)]
    })
}

fn bars(timeline: &Timeline, width: u32, axis: &str, of: Bars) -> anyhow::Result<String> {
    let together = timeline.steps.len().div_ceil(usize::try_from(width / BAR)?).max(1);
    let merge = |mut all: Step, step: &Step| {
        all.add(step);
        all
    };
    let steps: Vec<Step> =
        timeline.steps.chunks(together).map(|steps| steps.iter().fold(Step::default(), merge)).collect();
    let step_s = timeline.width_ns as f64 * together as f64 / 1e9;
    let end = (steps.len() as f64 * step_s).max(f64::MIN_POSITIVE);
    let top = steps.iter().map(|step| of(step)[1].0).fold(0.0, f64::max);
    let top = if top > 0.0 { top * 1.05 } else { 1.0 };
    draw((width, HEIGHT), |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_right(10)
            .margin_top(10)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        mesh(&mut chart)
            .disable_x_mesh()
            .x_labels(if width > 600 { 9 } else { 4 })
            .y_labels(5)
            .x_label_formatter(&|value| number(*value, end))
            .y_label_formatter(&|value| number(*value, top))
            .x_desc(if timeline.by_number { "pause number" } else { "time (s)" })
            .y_desc(axis)
            .draw()?;
        for start in &timeline.runs_ns {
            let x = *start as f64 / 1e9;
            let line = PathElement::new([(x, 0.0), (x, top)], MUTED.stroke_width(1));
            chart.draw_series([line])?;
        }
        for (at, step) in steps.iter().enumerate() {
            let (from, to) = (at as f64 * step_s, (at + 1) as f64 * step_s);
            let mut below = 0.0;
            for (height, color) in of(step) {
                if height > below {
                    chart.draw_series([Rectangle::new([(from, below), (to, height)], color.filled())])?;
                }
                below = height;
            }
        }
        Ok(())
    })
}

/// Formats a label of an axis of this width.
fn number(value: f64, width: f64) -> String {
    match width {
        w if w >= 100_000.0 => format!("{:.0}k", value / 1000.0),
        w if w >= 10.0 => format!("{value:.0}"),
        w if w >= 1.0 => format!("{value:.1}"),
        w if w >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
