//! The curves as SVG: nanoseconds per load against the number of pages, both logarithmic, with the knees
//! marked in the legend above.

use hugewise_measure::tlb::curve::Point;
use plotters::{
    coord::{Shift, types::RangedCoordf64},
    prelude::*,
    style::text_anchor::{HPos, VPos},
};

use super::result::TlbReport;
use crate::output::drawing::{GRID, MUTED, PALETTE, TEXT, draw, plot_error, style};

// Lengths in pixels.
const WIDTH: u32 = 960;
/// Height of the chart with its x axis.
const CHART: u32 = 460;
/// Height of a row of the legend.
const ROW: u32 = 22;
/// Height of title and subtitle.
const TITLE: u32 = 62;
/// Space below the legend.
const GAP: u32 = 14;
/// Width of the y axis.
const LEFT: u32 = 64;
/// Space right of the curves.
const RIGHT: u32 = 24;
/// Height of the x axis.
const BELOW: u32 = 56;

/// In pixels, times 1.24: plotters divides font sizes by 1.24 in SVG.
const TITLE_SIZE: f64 = 22.0;
const TEXT_SIZE: f64 = 16.0;

/// A curve and its row of the legend.
struct Drawn<'a> {
    name: String,
    points: &'a [Point],
    color: RGBColor,
    dashed: bool,
    knees: Vec<(u64, usize)>,
}

fn curves(report: &TlbReport) -> Vec<Drawn<'_>> {
    let curves = &report.curves;
    let mut all = vec![Drawn {
        name: format!("adjacent cache lines ({})", curves.packed_on),
        points: &curves.packed,
        color: PALETTE[0],
        dashed: false,
        knees: Vec::new(),
    }];
    for (number, (measured, finding)) in report.each().enumerate() {
        let color = PALETTE[1 + number % (PALETTE.len() - 1)];
        let size = measured.page_size;
        all.push(Drawn {
            name: format!("one cache line per page of {size} ({})", measured.backing),
            points: &measured.paged,
            color,
            dashed: false,
            knees: finding.levels.iter().map(|level| (level.pages, level.level)).collect(),
        });
        if let Some(strided) = &measured.strided {
            let base = curves.base;
            all.push(Drawn {
                name: format!("one cache line per {base} of pages of {size} ({})", measured.backing),
                points: strided,
                color,
                dashed: true,
                knees: Vec::new(),
            });
        }
    }
    all
}

pub fn svg(report: &TlbReport) -> anyhow::Result<String> {
    let curves = curves(report);
    let points = || curves.iter().flat_map(|curve| curve.points);
    let last = points().map(|point| point.pages).max().unwrap_or(1) as f64;
    let (low, high) =
        points().fold((f64::INFINITY, 0.0_f64), |(low, high), point| (low.min(point.ns), high.max(point.ns)));
    let (low, high) = if low > 0.0 && low < high { (low, high) } else { (0.5, 2.0) };
    let header = TITLE + ROW * u32::try_from(curves.len())? + GAP;
    draw((WIDTH, header + CHART), |area| {
        area.fill(&WHITE).map_err(plot_error)?;
        let (head, body) = area.split_vertically(header);
        let (from, to) = (0.0, last.log2() + 0.1);
        // Powers of two, so that the axis starts and ends on a grid line.
        let (bottom, top) = ((low * 0.95).log2().floor(), (high * 1.05).log2().ceil());
        let inner = f64::from(WIDTH - LEFT - RIGHT - 1);
        let x = |pages: u64| (f64::from(LEFT) + (pages as f64).log2() / to * inner).floor() as i32;

        legend(&head, report, &curves, &x, i32::try_from(header)?)?;
        let mut chart = ChartBuilder::on(&body)
            .margin_right(RIGHT)
            .x_label_area_size(BELOW)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(from..to, bottom..top)
            .map_err(plot_error)?;
        axes(&mut chart, (to, bottom, top))?;
        for curve in &curves {
            for (pages, _) in &curve.knees {
                let x = (*pages as f64).log2();
                let line = PathElement::new([(x, bottom), (x, top)], curve.color.mix(0.45).stroke_width(1));
                chart.draw_series([line]).map_err(plot_error)?;
            }
        }
        for (number, curve) in curves.iter().enumerate() {
            // Wider than the curves drawn later, so that none is hidden.
            let solid = curves[number + 1..].iter().filter(|later| !later.dashed).count();
            let stroke = curve.color.stroke_width(2 + 2 * u32::try_from(solid)?);
            let line = curve.points.iter().map(|point| ((point.pages as f64).log2(), point.ns.log2()));
            if curve.dashed {
                let line = DashedLineSeries::new(line, 5, 4, curve.color.stroke_width(2));
                chart.draw_series(line).map_err(plot_error)?;
            } else {
                chart.draw_series(LineSeries::new(line.clone(), stroke)).map_err(plot_error)?;
                let dots = line.map(|at| Circle::new(at, 2, curve.color.filled()));
                chart.draw_series(dots).map_err(plot_error)?;
            }
        }
        Ok(())
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Title, names of the curves, and the knees of each curve above their number of pages.
fn legend(
    head: &Area<'_>,
    report: &TlbReport,
    curves: &[Drawn<'_>],
    x: &impl Fn(u64) -> i32,
    height: i32,
) -> anyhow::Result<()> {
    let text = |size, color| style(size, color, HPos::Left, VPos::Center);
    let title = Text::new("TLB capacity and miss cost", (20, 22), text(TITLE_SIZE, TEXT));
    head.draw(&title).map_err(plot_error)?;
    let subtitle = format!(
        "dependent loads in random order · lower quartile of {} passes · knees: at half of each step",
        report.design.passes
    );
    head.draw(&Text::new(subtitle, (20, 46), text(TEXT_SIZE, MUTED))).map_err(plot_error)?;
    for (number, curve) in curves.iter().enumerate() {
        let y = i32::try_from(TITLE + ROW * u32::try_from(number)? + ROW / 2)?;
        let stroke = curve.color.stroke_width(3);
        let ends: &[(i32, i32)] = if curve.dashed { &[(20, 28), (34, 42)] } else { &[(20, 42)] };
        for (start, end) in ends {
            head.draw(&PathElement::new([(*start, y), (*end, y)], stroke)).map_err(plot_error)?;
        }
        head.draw(&Text::new(curve.name.clone(), (52, y), text(TEXT_SIZE, TEXT))).map_err(plot_error)?;
        for (pages, level) in &curve.knees {
            let at = x(*pages);
            let line = PathElement::new([(at, y), (at, height)], curve.color.mix(0.45).stroke_width(1));
            head.draw(&line).map_err(plot_error)?;
            head.draw(&Circle::new((at, y), 4, curve.color.filled())).map_err(plot_error)?;
            let label = format!("level {level}: {pages} pages");
            // Right of the dot, or left of it near the right edge.
            let (shift, side) =
                if at + 150 < i32::try_from(WIDTH)? { (9, HPos::Left) } else { (-9, HPos::Right) };
            let label = Text::new(label, (at + shift, y), style(TEXT_SIZE, curve.color, side, VPos::Center));
            head.draw(&label).map_err(plot_error)?;
        }
    }
    Ok(())
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws grid lines and labels at powers of two.
fn axes(chart: &mut Chart<'_, '_>, (right, bottom, top): (f64, f64, f64)) -> anyhow::Result<()> {
    let number = |log: i32| {
        let value = 2f64.powi(log);
        if value < 1.0 { format!("{value}") } else { format!("{value:.0}") }
    };
    for log in bottom as i32..=top as i32 {
        let y = f64::from(log);
        let line = PathElement::new([(0.0, y), (right, y)], GRID.stroke_width(1));
        chart.draw_series([line]).map_err(plot_error)?;
        let label = style(TEXT_SIZE, MUTED, HPos::Right, VPos::Center);
        let label = EmptyElement::at((0.0, y)) + Text::new(number(log), (-8, 0), label);
        chart.plotting_area().draw(&label).map_err(plot_error)?;
    }
    for log in 0..=right as i32 {
        let x = f64::from(log);
        let line = PathElement::new([(x, bottom), (x, top)], GRID.stroke_width(1));
        chart.draw_series([line]).map_err(plot_error)?;
        let label = style(TEXT_SIZE, MUTED, HPos::Center, VPos::Top);
        let label = EmptyElement::at((x, bottom)) + Text::new(number(log), (0, 7), label);
        chart.plotting_area().draw(&label).map_err(plot_error)?;
    }
    let name = style(TEXT_SIZE, TEXT, HPos::Center, VPos::Top);
    let name =
        EmptyElement::at((right / 2.0, bottom)) + Text::new("pages (or adjacent cache lines)", (0, 30), name);
    chart.plotting_area().draw(&name).map_err(plot_error)?;
    let name = style(TEXT_SIZE, TEXT, HPos::Center, VPos::Bottom).transform(FontTransform::Rotate270);
    let name = EmptyElement::at((0.0, f64::midpoint(bottom, top))) + Text::new("ns per load", (-36, 0), name);
    chart.plotting_area().draw(&name).map_err(plot_error)?;
    Ok(())
}
