//! Time against chunk size, as SVG: a panel for each backing, a line for each method.

use std::{collections::BTreeSet, path::Path};

use anyhow::Context;
use hugewise_linux::{hugepages::backing::Backing, units::Bytes};
use hugewise_measure::{
    pretouch::{Implementation, PretouchRow, bench::name},
    statistics::median,
};
use plotters::{
    coord::{Shift, combinators::LogCoord},
    prelude::*,
    style::text_anchor::{HPos, VPos},
};

use super::{
    result::PretouchReport,
    units::{threads, time},
};
use crate::output::{
    drawing::{self, GRID, MUTED, PALETTE, TEXT, plot_error, style},
    file::{self, Readers},
};

const PANEL: (u32, u32) = (420, 300);
const HEAD: u32 = 64;
/// In pixels, times 1.24: plotters divides font sizes by 1.24 in SVG.
const TEXT_SIZE: f64 = 15.5;

/// Writes the plot of the largest size and most threads to a file, or one for each of them to a folder.
pub fn write(report: &PretouchReport, path: &Path) -> anyhow::Result<()> {
    let rows = report.table.rows.iter().filter(|row| row.way.chunk.is_some() && !row.held_out);
    let pages: BTreeSet<(Bytes, usize)> = rows.map(|row| (row.case.bytes, row.case.threads)).collect();
    let largest = *pages.last().context("--plot: no chunk size was measured")?;
    if !path.is_dir() {
        return write_page(report, largest, path);
    }
    pages.into_iter().try_for_each(|(bytes, count)| {
        let name = format!("pretouch-{bytes}-{}.svg", threads(count).replace(' ', "-"));
        write_page(report, (bytes, count), &path.join(name))
    })
}

fn write_page(report: &PretouchReport, (bytes, count): (Bytes, usize), file: &Path) -> anyhow::Result<()> {
    let svg = page(report, bytes, count)?;
    file::write(file, Readers::All, &svg).with_context(|| format!("cannot write {}", file.display()))
}

/// A line of a panel.
struct Line {
    color: RGBColor,
    /// Requested chunk size in bytes, with minimum, median and maximum time in seconds.
    points: Vec<(f64, [f64; 3])>,
    /// Default chunk size in bytes, with its median time in seconds.
    by_itself: Option<(f64, f64)>,
}

fn page(report: &PretouchReport, bytes: Bytes, count: usize) -> anyhow::Result<String> {
    let rows: Vec<&PretouchRow> = report
        .table
        .rows
        .iter()
        .filter(|row| !row.held_out && (row.case.bytes, row.case.threads) == (bytes, count))
        .filter(|row| matches!(row.way.by, Implementation::Engine | Implementation::Jvm(_)))
        .collect();
    let of_design = |backing: &&Backing| rows.iter().any(|row| row.case.backing == **backing);
    let backings: Vec<Backing> = report.table.design.backings.iter().filter(of_design).copied().collect();
    let makers: Vec<Implementation> =
        rows.iter().map(|row| row.way.by).collect::<BTreeSet<_>>().into_iter().collect();
    let (xs, ys) = ranges(&rows)?;
    let panels = u32::try_from(backings.len())?.max(1);
    drawing::draw((PANEL.0 * panels, PANEL.1 + HEAD), |area| {
        area.fill(&WHITE).map_err(plot_error)?;
        let (head, body) = area.split_vertically(HEAD);
        let title = format!("Pre-touch of {bytes} by {}: time against chunk size", threads(count));
        heading(&head, report, &title, &makers)?;
        for (part, backing) in body.split_evenly((1, panels as usize)).iter().zip(&backings) {
            let lines = makers.iter().enumerate().map(|(index, by)| {
                let of_line = rows.iter().filter(|row| row.case.backing == *backing && row.way.by == *by);
                line(color_of(index), &of_line.copied().collect::<Vec<_>>())
            });
            panel(part, &backing.to_string(), &lines.collect::<Vec<_>>(), xs, ys)?;
        }
        Ok(())
    })
}

/// The first colour is that of a reference, which this plot does not have.
fn color_of(index: usize) -> RGBColor {
    PALETTE[1 + index % (PALETTE.len() - 1)]
}

fn line(color: RGBColor, rows: &[&PretouchRow]) -> Line {
    let times = |row: &PretouchRow| {
        let times: Vec<f64> = row.samples.iter().map(|sample| sample.seconds).collect();
        let low = times.iter().copied().fold(f64::INFINITY, f64::min);
        let high = times.iter().copied().fold(0.0, f64::max);
        median(&times).map(|middle| [low, middle, high])
    };
    let points = rows.iter().filter_map(|row| Some((row.way.chunk?.0 as f64, times(row)?)));
    let by_itself = rows.iter().filter(|row| row.way.chunk.is_none()).find_map(|row| {
        let used = row.samples.first()?.chunk?;
        Some((used.0 as f64, times(row)?[1]))
    });
    Line { color, points: points.collect(), by_itself }
}

/// The ranges of both axes, common to all panels.
fn ranges(rows: &[&PretouchRow]) -> anyhow::Result<((f64, f64), (f64, f64))> {
    let chunks = rows.iter().flat_map(|row| {
        let used = row.samples.first().and_then(|sample| sample.chunk).filter(|_| row.way.chunk.is_none());
        row.way.chunk.or(used)
    });
    let around = |values: &mut dyn Iterator<Item = f64>, air: f64| {
        let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
        (low > 0.0 && low.is_finite()).then_some((low / air, high * air))
    };
    let xs = around(&mut chunks.map(|chunk| chunk.0 as f64), 2.0);
    let ys = around(&mut rows.iter().flat_map(|row| &row.samples).map(|sample| sample.seconds), 1.25);
    xs.zip(ys).context("--plot: nothing was measured")
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn heading(
    head: &Area<'_>,
    report: &PretouchReport,
    title: &str,
    makers: &[Implementation],
) -> anyhow::Result<()> {
    let text = |color| style(TEXT_SIZE, color, HPos::Left, VPos::Center);
    head.draw(&Text::new(title.to_owned(), (12, 18), text(TEXT))).map_err(plot_error)?;
    let mut x = 18;
    for (index, by) in makers.iter().enumerate() {
        let color = color_of(index);
        let label = name(*by, &report.table.jvms);
        head.draw(&Circle::new((x, 44), 5, color.filled())).map_err(plot_error)?;
        head.draw(&Text::new(label.to_owned(), (x + 12, 44), text(TEXT))).map_err(plot_error)?;
        x += 40 + 8 * i32::try_from(label.len())?;
    }
    head.draw(&Text::new("ring: default chunk size".to_owned(), (x, 44), text(MUTED))).map_err(plot_error)
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoord<f64>, LogCoord<f64>>>;

fn panel(area: &Area<'_>, title: &str, lines: &[Line], xs: (f64, f64), ys: (f64, f64)) -> anyhow::Result<()> {
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(34)
        .caption(title, ("sans-serif", TEXT_SIZE).into_font().color(&TEXT))
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d((xs.0..xs.1).log_scale().base(2.0), (ys.0..ys.1).log_scale().base(2.0))
        .map_err(plot_error)?;
    let small = || ("sans-serif", 14.0).into_font().color(&MUTED);
    chart
        .configure_mesh()
        .x_labels(6)
        .y_labels(6)
        .axis_style(GRID)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|chunk| Bytes(chunk.round() as u64).to_string())
        .y_label_formatter(&|seconds| time(*seconds))
        .label_style(small())
        .axis_desc_style(small())
        .x_desc("chunk size")
        .draw()
        .map_err(plot_error)?;
    for line in lines {
        draw(&mut chart, line)?;
    }
    Ok(())
}

fn draw(chart: &mut Chart<'_, '_>, line: &Line) -> anyhow::Result<()> {
    let color = line.color;
    let middles = || line.points.iter().map(|(chunk, [_, middle, _])| (*chunk, *middle));
    chart.draw_series(LineSeries::new(middles(), color.stroke_width(2))).map_err(plot_error)?;
    let spreads = line.points.iter().map(|(chunk, [low, _, high])| {
        PathElement::new([(*chunk, *low), (*chunk, *high)], color.stroke_width(1))
    });
    chart.draw_series(spreads).map_err(plot_error)?;
    chart.draw_series(middles().map(|at| Circle::new(at, 4, color.filled()))).map_err(plot_error)?;
    let ring = line.by_itself.iter().map(|at| Circle::new(*at, 7, color.stroke_width(2)));
    chart.draw_series(ring).map_err(plot_error)?;
    Ok(())
}
