//! The turns of a live comparison on a time line.

use hugewise_measure::comparison::{Comparison, live::Live};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, VPos},
};

use super::words::Scale;
use crate::output::drawing::{MUTED, PALETTE, draw, mesh, style};

/// Width and height, in the units of the view box.
const SIZE: (u32, u32) = (340, 230);

/// A line for each turn at the height of its value, in the colour of its arm; lighter if it does not count. `None`
/// without turns.
pub fn svg(
    comparison: &Comparison,
    live: &Live,
    figure: &str,
    scale: &Scale,
) -> anyhow::Result<Option<String>> {
    let turns: Vec<(f64, f64, f64, usize, bool)> = live
        .turns
        .iter()
        .filter_map(|turn| {
            let round = comparison.rounds.get(turn.round)?;
            let value = scale.scaled(*round.figures.get(figure)?);
            Some((turn.begin_seconds, turn.end_seconds, value, round.arm, round.fell_back.is_none()))
        })
        .collect();
    let last = turns.iter().map(|turn| turn.1).fold(0.0, f64::max);
    let highest = turns.iter().map(|turn| turn.2).fold(0.0, f64::max);
    if turns.is_empty() || !(last + highest).is_finite() {
        return Ok(None);
    }
    let top = if highest > 0.0 { highest * 1.08 } else { 1.0 };
    let drawn = draw(SIZE, |area| {
        let label = style(14.5, MUTED, HPos::Left, VPos::Center);
        let names = comparison.design.arms.iter().enumerate();
        for (arm, name) in names {
            let x = 16 + 110 * i32::try_from(arm)?;
            area.draw(&Circle::new((x, 12), 5, PALETTE[arm % PALETTE.len()].filled()))?;
            area.draw(&Text::new(name.to_string(), (x + 10, 12), label.clone()))?;
        }
        let (_, body) = area.split_vertically(26);
        let mut chart = ChartBuilder::on(&body)
            .margin_right(14)
            .margin_top(8)
            .x_label_area_size(42)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..last, 0.0..top)?;
        mesh(&mut chart).disable_x_mesh().x_labels(5).y_labels(5).x_desc("seconds since the begin").draw()?;
        for (begin, end, value, arm, counts) in turns {
            let color = PALETTE[arm % PALETTE.len()].mix(if counts { 1.0 } else { 0.3 });
            chart.draw_series([PathElement::new([(begin, value), (end, value)], color.stroke_width(4))])?;
        }
        Ok(())
    })?;
    Ok(Some(drawn))
}
