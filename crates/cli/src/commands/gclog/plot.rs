//! Pauses over time, as SVG embedded in the page.
//!
//! The style sheet of the page maps the fixed colours of the SVG to those of the light or dark theme.

use hugewise_jvm::gc_log::timeline::{Step, Timeline};
use plotters::{coord::types::RangedCoordf64, prelude::*};

use crate::output::drawing::{GRID, MUTED, PALETTE, draw, plot_error};

const HEIGHT: u32 = 230;
/// In pixels, times 1.24: plotters divides font sizes by 1.24 in SVG.
const TEXT_SIZE: f64 = 14.5;
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
    let steps: Vec<Step> = timeline.steps.chunks(together).map(merged).collect();
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
            .build_cartesian_2d(0.0..end, 0.0..top)
            .map_err(plot_error)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(if width > 600 { 9 } else { 4 })
            .y_labels(5)
            .axis_style(GRID)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(("sans-serif", TEXT_SIZE).into_font().color(&MUTED))
            .axis_desc_style(("sans-serif", TEXT_SIZE).into_font().color(&MUTED))
            .x_label_formatter(&|value| number(*value, end))
            .y_label_formatter(&|value| number(*value, top))
            .x_desc(if timeline.by_number { "pause number" } else { "time (s)" })
            .y_desc(axis)
            .draw()
            .map_err(plot_error)?;
        for start in &timeline.runs_ns {
            let x = *start as f64 / 1e9;
            let line = PathElement::new([(x, 0.0), (x, top)], MUTED.stroke_width(1));
            chart.draw_series([line]).map_err(plot_error)?;
        }
        draw_bars(&mut chart, &steps, step_s, of)
    })
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

fn draw_bars(chart: &mut Chart<'_, '_>, steps: &[Step], step_s: f64, of: Bars) -> anyhow::Result<()> {
    for (at, step) in steps.iter().enumerate() {
        let (from, to) = (at as f64 * step_s, (at + 1) as f64 * step_s);
        let mut below = 0.0;
        for (height, color) in of(step) {
            if height > below {
                let bar = Rectangle::new([(from, below), (to, height)], color.filled());
                chart.draw_series([bar]).map_err(plot_error)?;
            }
            below = height;
        }
    }
    Ok(())
}

fn merged(steps: &[Step]) -> Step {
    let mut all = Step::default();
    for step in steps {
        all.add(step);
    }
    all
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
