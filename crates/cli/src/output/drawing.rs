//! Shared by all plots: colours, text styles, the SVG area.

use anyhow::{Context, anyhow};
use plotters::{
    chart::MeshStyle,
    coord::{Shift, types::RangedCoordf64},
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

pub const TEXT: RGBColor = RGBColor(0x1b, 0x1f, 0x24);
/// Secondary text.
pub const MUTED: RGBColor = RGBColor(0x5b, 0x64, 0x70);
/// Grid lines.
pub const GRID: RGBColor = RGBColor(0xdd, 0xe1, 0xe6);

/// Colours of series, distinguishable with colour blindness (Okabe and Ito, "Color Universal Design", 2008);
/// the first, grey, is for the reference. The style sheet of the page defines a class for each of them.
pub const PALETTE: [RGBColor; 7] = [
    RGBColor(0x6c, 0x75, 0x7d),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];

/// A chart with numbers on both axes.
pub type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Font size of axes. In pixels, times 1.24: plotters divides font sizes by 1.24 in SVG.
pub const AXIS_SIZE: f64 = 14.5;

/// The grid, the axes and their labels.
pub fn mesh<'a, 'b, 'c>(
    chart: &'c mut Chart<'a, 'b>,
) -> MeshStyle<'a, 'c, RangedCoordf64, RangedCoordf64, SVGBackend<'b>> {
    let font = || ("sans-serif", AXIS_SIZE).into_font().color(&MUTED);
    let mut mesh = chart.configure_mesh();
    mesh.axis_style(GRID).bold_line_style(GRID).light_line_style(TRANSPARENT);
    mesh.label_style(font()).axis_desc_style(font());
    mesh
}

pub fn style(size: f64, color: RGBColor, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&color).pos(Pos::new(horizontal, vertical))
}

/// Draws an SVG of `size` (width and height in pixels).
pub fn draw(
    size: (u32, u32),
    paint: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        paint(&area).and_then(|()| Ok(area.present()?)).context("cannot draw the plot")?;
    }
    Ok(svg)
}

/// Converts an error of plotters.
pub fn plot_error(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}
