"""Plots as SVG."""

import math
import statistics
from html import escape

WIDTH, LABEL, RIGHT, ROW, AXIS = 720, 150, 90, 34, 46
COLOURS = ["#8A94A0", "#5B6470", "#2A7DB8", "#1B9E6B"]
GRID, TEXT = "#DDE1E6", "#5B6470"


def dots(series, unit):
    """One line for each of (name, values): a bar up to the median, and a dot for each value."""
    most = max(max(values) for _, values in series)
    step = nice(most / 4)
    end = step * math.ceil(most / step)
    at = lambda value: LABEL + (WIDTH - LABEL - RIGHT) * value / end
    bottom = ROW * len(series) + 8
    marks = []
    for n in range(round(end / step) + 1):
        x = at(n * step)
        marks.append(f'<line x1="{x:.1f}" y1="4" x2="{x:.1f}" y2="{bottom}" stroke="{GRID}"/>')
        marks.append(text(x, bottom + 16, f"{n * step:,.0f}", "middle"))
    for i, (name, values) in enumerate(series):
        middle = ROW * i + ROW / 2 + 4
        colour = COLOURS[i % len(COLOURS)]
        of = statistics.median(values)
        marks.append(text(LABEL - 8, middle + 4, name, "end"))
        marks.append(f'<rect x="{LABEL}" y="{middle - 9}" width="{at(of) - LABEL:.1f}" height="18" rx="2" fill="{colour}" fill-opacity="0.75"/>')
        marks += [f'<circle cx="{at(value):.1f}" cy="{middle}" r="3" fill="#FFFFFF" stroke="{colour}" stroke-width="1.5"/>' for value in values]
        marks.append(text(max(at(of), at(max(values))) + 8, middle + 4, f"{of:,.0f}", "start"))
    marks.append(text((LABEL + WIDTH - RIGHT) / 2, bottom + 34, unit, "middle"))
    return svg(bottom + AXIS, marks)


def intervals(rows, unit):
    """One line for each of (name, estimate, low, high): a dot on its interval, beside a line at 1."""
    label = 260
    low, high = min(1, *(row[2] for row in rows)), max(1, *(row[3] for row in rows))
    step = nice((high - low) / 6)
    first, last = math.floor(low / step), math.ceil(high / step)
    at = lambda value: label + (WIDTH - label - RIGHT) * (value / step - first) / (last - first)
    bottom = ROW * len(rows) + 8
    marks = []
    for n in range(first, last + 1):
        marks.append(f'<line x1="{at(n * step):.1f}" y1="4" x2="{at(n * step):.1f}" y2="{bottom}" stroke="{GRID}"/>')
        marks.append(text(at(n * step), bottom + 16, f"{n * step:.{max(0, -math.floor(math.log10(step)))}f}", "middle"))
    marks.append(f'<line x1="{at(1):.1f}" y1="4" x2="{at(1):.1f}" y2="{bottom}" stroke="{TEXT}"/>')
    for i, (name, estimate, low, high) in enumerate(rows):
        middle = ROW * i + ROW / 2 + 4
        colour = COLOURS[2] if high < 1 or low > 1 else COLOURS[0]
        marks.append(text(label - 8, middle + 4, name, "end"))
        marks.append(f'<line x1="{at(low):.1f}" y1="{middle}" x2="{at(high):.1f}" y2="{middle}" stroke="{colour}" stroke-width="3"/>')
        marks.append(f'<circle cx="{at(estimate):.1f}" cy="{middle}" r="5" fill="{colour}"/>')
        marks.append(text(WIDTH - 8, middle + 4, f"{estimate:.3f}", "end"))
    marks.append(text((label + WIDTH - RIGHT) / 2, bottom + 34, unit, "middle"))
    return svg(bottom + AXIS, marks)


def svg(height, marks):
    body = "\n".join(marks)
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" ' \
        f'font-size="12">\n<rect width="{WIDTH}" height="{height}" fill="#FFFFFF"/>\n{body}\n</svg>\n'


def text(x, y, words, anchor):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{TEXT}">{escape(words)}</text>'


def nice(step):
    """The next of 1, 2, 5, 10, 20 … that is not less."""
    power = 10 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step)
