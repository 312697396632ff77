//! The plots of a comparison, as SVG embedded in the page.
//!
//! Plots are [`WIDTH`] wide, to fit on a phone of 375 pixels, and have a row for each backing, with its name
//! above its mark. The style sheet of the page maps the fixed colours to those of the light or dark theme.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, VPos},
};

use crate::output::{
    drawing::{AXIS_SIZE, Chart, GRID, MUTED, PALETTE, TEXT, draw, mesh, style},
    words::shortened,
};

/// Width of a plot, in the units of its view box.
const WIDTH: u32 = 340;
/// Height of a row.
const ROW: u32 = 42;
/// Height of the axis with its description.
const AXIS: u32 = 46;
/// In pixels, times 1.24: plotters divides font sizes by 1.24 in SVG.
const TEXT_SIZE: f64 = 15.5;
/// Longest name of a row, in characters.
const MAX_LABEL_CHARS: usize = 26;

/// The colour of an arm, the same in every plot of a page.
fn color(arm: usize) -> RGBColor {
    PALETTE[arm % PALETTE.len()]
}

/// A row of a plot.
pub struct Strip {
    pub label: String,
    /// The value as text, at the end of the row.
    pub value: String,
    /// Index of the arm, for the colour.
    pub arm: usize,
    pub mark: Mark,
}

/// The drawing in a row.
pub enum Mark {
    /// A point for each round, and their mean.
    Points(Vec<f64>, f64),
    Interval {
        low: f64,
        estimate: f64,
        high: f64,
    },
    /// A share in percent.
    Bar(f64),
}

/// The values of one arm for each value of a parameter.
pub struct Line {
    pub label: String,
    /// Index of the arm, for the colour.
    pub arm: usize,
    /// Minimum, mean and maximum for each value of the parameter; `None` if no round counts.
    pub points: Vec<Option<(f64, f64, f64)>>,
}

/// Rows with a common axis. With `one`, the axis includes 1, which is marked by a line.
pub fn strips(rows: &[Strip], axis: &str, one: bool) -> anyhow::Result<String> {
    let (from, to) = range(rows, one);
    let count = rows.len() as f64;
    let height = ROW * u32::try_from(rows.len())? + AXIS;
    draw((WIDTH, height), |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_left(8)
            .margin_right(18)
            .margin_bottom(4)
            .x_label_area_size(AXIS - 4)
            .build_cartesian_2d(from..to, 0.0..count)?;
        mesh(&mut chart)
            .disable_y_mesh()
            .disable_y_axis()
            .x_labels(5)
            .y_labels(0)
            .x_label_formatter(&|value| plain(*value, to - from))
            .x_desc(shortened(axis, 48))
            .draw()?;
        for (index, row) in rows.iter().enumerate() {
            // The name is in the upper half of the row, the mark in the lower half.
            let top = count - index as f64;
            let middle = top - 0.70;
            let name = shortened(&row.label, MAX_LABEL_CHARS);
            let label = style(TEXT_SIZE, TEXT, HPos::Left, VPos::Top);
            let value = style(TEXT_SIZE, MUTED, HPos::Right, VPos::Top);
            chart.draw_series([EmptyElement::at((from, top)) + Text::new(name, (0, 4), label)])?;
            chart.draw_series([EmptyElement::at((to, top)) + Text::new(row.value.clone(), (0, 4), value)])?;
            if one {
                // Not across the text of the row.
                let line = PathElement::new([(1.0, top - 0.42), (1.0, top - 1.0)], TEXT.stroke_width(1));
                chart.draw_series([line])?;
            }
            draw_mark(&mut chart, row, middle, (from, to))?;
        }
        Ok(())
    })
}

/// Draws the mark of a row at height `y`, clipped to the axis.
fn draw_mark(chart: &mut Chart<'_, '_>, row: &Strip, y: f64, (from, to): (f64, f64)) -> anyhow::Result<()> {
    let inside = |value: f64| value.clamp(from, to);
    let upright = |x: f64, half: f64| [(inside(x), y - half), (inside(x), y + half)];
    let color = color(row.arm);
    match &row.mark {
        Mark::Points(points, mean) => {
            // Spread vertically, so that equal values do not hide each other.
            let spread = |index: usize| ((index * 7) % 5) as f64 * 0.06 - 0.12;
            let circles = points.iter().enumerate().map(|(index, point)| {
                Circle::new((inside(*point), y + spread(index)), 4, color.mix(0.55).filled())
            });
            chart.draw_series(circles)?;
            let mean = PathElement::new(upright(*mean, 0.25), color.stroke_width(3));
            chart.draw_series([mean])?;
        }
        Mark::Interval { low, estimate, high } => {
            let line = PathElement::new([(inside(*low), y), (inside(*high), y)], color.stroke_width(3));
            let ends = [*low, *high].map(|end| PathElement::new(upright(end, 0.12), color.stroke_width(2)));
            chart.draw_series([line])?;
            chart.draw_series(ends)?;
            chart.draw_series([Circle::new((inside(*estimate), y), 5, color.filled())])?;
        }
        Mark::Bar(share) => {
            let bar = |end: f64, style| Rectangle::new([(0.0, y - 0.16), (end, y + 0.16)], style);
            chart.draw_series([bar(to, GRID.filled()), bar(inside(*share), color.filled())])?;
        }
    }
    Ok(())
}

/// A line for each backing against the values of a parameter, with minimum and maximum.
pub fn lines(lines: &[Line], values: &[String], axis: &str, parameter: &str) -> anyhow::Result<String> {
    let seen: Vec<f64> = lines
        .iter()
        .flat_map(|line| line.points.iter().flatten())
        .flat_map(|(low, _, high)| [*low, *high])
        .collect();
    let highest = seen.iter().copied().fold(0.0, f64::max);
    let legend = 20 * u32::try_from(lines.len())?;
    draw((WIDTH, 250 + legend), |area| {
        let (head, body) = area.split_vertically(legend + 26);
        let label = |color| style(TEXT_SIZE, color, HPos::Left, VPos::Center);
        head.draw(&Text::new(axis.to_owned(), (8, 10), label(MUTED)))?;
        for (index, line) in lines.iter().enumerate() {
            let y = 34 + 20 * i32::try_from(index)?;
            head.draw(&Circle::new((16, y), 5, color(line.arm).filled()))?;
            let name = shortened(&line.label, MAX_LABEL_CHARS);
            head.draw(&Text::new(name, (28, y), label(TEXT)))?;
        }
        let last = values.len() as f64 - 0.5;
        let top = if highest > 0.0 { highest * 1.08 } else { 1.0 };
        let mut chart = ChartBuilder::on(&body)
            .margin_right(12)
            .margin_top(8)
            .x_label_area_size(AXIS)
            .y_label_area_size(46)
            .build_cartesian_2d(-0.5..last, 0.0..top)?;
        let tick = style(AXIS_SIZE, MUTED, HPos::Center, VPos::Top);
        mesh(&mut chart)
            .disable_x_mesh()
            .x_labels(0)
            .y_labels(5)
            .y_label_formatter(&|value| plain(*value, top))
            .draw()?;
        // All values if they fit, otherwise every second, third …
        let step = values.len().div_ceil(6).max(1);
        for (index, value) in values.iter().enumerate().step_by(step) {
            let name = Text::new(shortened(value, 10), (0, 7), tick.clone());
            chart.draw_series([EmptyElement::at((index as f64, 0.0)) + name])?;
        }
        let under = Text::new(shortened(parameter, 40), (0, 26), tick);
        chart.draw_series([EmptyElement::at((last / 2.0 - 0.25, 0.0)) + under])?;
        for (number, line) in lines.iter().enumerate() {
            let color = color(line.arm);
            // Shifted horizontally, so that lines do not hide each other.
            let aside = (number as f64 - (lines.len() as f64 - 1.0) / 2.0) * 0.07;
            let known = || {
                line.points.iter().enumerate().filter_map(|(x, point)| Some((x as f64 + aside, (*point)?)))
            };
            let means = || known().map(|(x, (_, mean, _))| (x, mean));
            let ends = known().map(|(x, (low, _, high))| [(x, low), (x, high)]);
            chart.draw_series(LineSeries::new(means(), color.stroke_width(2)))?;
            chart.draw_series(ends.map(|ends| PathElement::new(ends, color.stroke_width(1))))?;
            chart.draw_series(means().map(|at| Circle::new(at, 4, color.filled())))?;
        }
        Ok(())
    })
}

/// Formats a label of an axis of this width.
fn plain(value: f64, width: f64) -> String {
    match width {
        // Numbers with five digits do not fit.
        w if w >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        w if w >= 10.0 => format!("{value:.0}"),
        w if w >= 1.0 => format!("{value:.1}"),
        w if w >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The range of an axis, with a margin.
fn range(rows: &[Strip], one: bool) -> (f64, f64) {
    let mut low = if one { 1.0 } else { f64::INFINITY };
    let mut high = if one { 1.0 } else { f64::NEG_INFINITY };
    for row in rows {
        match &row.mark {
            Mark::Bar(_) => return (0.0, 100.0),
            Mark::Points(points, mean) => {
                low = points.iter().copied().fold(low.min(*mean), f64::min);
                high = points.iter().copied().fold(high.max(*mean), f64::max);
            }
            // Clipped at a factor of 4, so that other intervals stay visible.
            Mark::Interval { low: from, high: to, .. } => {
                low = low.min(from.max(0.25));
                high = high.max(to.min(4.0));
            }
        }
    }
    if !(high - low).is_finite() {
        return (0.0, 1.0);
    }
    // At least so wide that the labels differ in their digits.
    let least = high.abs().max(low.abs()) * 1e-6;
    let air = if high > low { ((high - low) * 0.06).max(least) } else { (high.abs() * 0.05).max(0.5) };
    // Times and counts are not negative.
    let from = if low >= 0.0 { (low - air).max(0.0) } else { low - air };
    (from, high + air)
}
