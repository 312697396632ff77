"""Text of results: tables in markdown, amounts with units."""

import re

import estimates

# Factors and units by the end of a name, the smallest first.
SCALES = {
    "_seconds": [(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1, "s")],
    "_bytes": [(1, "B"), (1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB")],
    "_ratio": [(0.01, "%")],
}


def part(part):
    """The rows of a part, as a table."""
    rows = part["rows"]
    names = list(dict.fromkeys(name for row in rows for name in row["values"]))
    units = {name: unit(name, [row["values"].get(name) for row in rows]) for name in names}
    is_ratio = part["quantity"] == "ratio"
    scale = (1, "") if is_ratio else unit(part["unit"], [row["estimate"] for row in rows])
    figure = {"ratio": "ratio", "difference": "difference", "value": "estimate", "count": "count"}[part["quantity"]]
    is_count = part["quantity"] == "count"
    compared = "samples" if is_count or part["quantity"] == "value" else "pairs"
    estimate = heading(figure, scale[1]) + ("" if is_count else " [95 %]")
    head = ["", *(heading(name, units[name][1]) for name in names), compared, estimate, "limit", "verdict"]
    if not any(row["limit"] for row in rows):
        head.remove("limit")
    lines = []
    for row in rows:
        cells = [row["label"], *(value(row["values"].get(name, "–"), units[name][0], name) for name in names)]
        cells += [row["pairs"], interval(row, part["quantity"], scale[0])] + ([limit(row, scale[0])] if "limit" in head else [])
        lines.append([*cells, verdict(row)])
    return "\n\n".join([markdown(head, lines), *(f"- {note}" for note in part["notes"])])


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows])


def heading(name, unit):
    words = re.sub("_(seconds|bytes|ratio)$", "", name).replace("_", " ")
    return f"{words}, {unit}" if unit else words


def unit(name, values):
    """(factor, unit) in which the median of the values is at least 1."""
    scales = next((scales for end, scales in SCALES.items() if f"_{name}".endswith(end)), [(1, "")])
    known = sorted(abs(value) for value in values if isinstance(value, (int, float)))
    middle = known[len(known) // 2] if known else 0
    return next((scale for scale in reversed(scales) if middle >= scale[0]), scales[0])


def value(value, factor, name):
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return value
    if factor == 1 and not name.endswith(tuple(SCALES)):
        return f"{value:,}" if isinstance(value, int) else significant(value)
    if name.endswith("_ratio"):
        return f"{100 * value:.0f}"
    return significant(value / factor)


def significant(value):
    """With three significant digits."""
    if value == 0:
        return "0"
    digits = max(0, 2 - len(str(int(abs(value)))) + 1) if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def interval(row, quantity, factor=1):
    """`0.716 [0.684–0.751]`; no figure without an interval, or with one that is too wide."""
    if row["low"] is None or estimates.excess_width(row["low"], row["high"], row["limit"], quantity) > 1:
        return "–"
    if quantity == "count":
        return str(row["estimate"])
    numbers = [row[name] / factor for name in ("estimate", "low", "high")]
    is_near_one = quantity == "ratio" and max(numbers) < 10
    middle, low, high = (f"{number:.3f}" if is_near_one else significant(number).replace("-", "−") for number in numbers)
    return f"{middle} [{low}{' to ' if numbers[1] < 0 else '–'}{high}]"


def limit(row, factor=1):
    signs = {"at_least": "≥", "at_most": "≤"}
    texts = [f"± {100 * bound:g} %" if name == "within" else f"{signs[name]} {bound / factor:.4g}" for name, bound in row["limit"].items()]
    return ", ".join(texts)


def verdict(row):
    words = row["verdict"].replace("_", " ")
    return f"{words}: {row['detail']}" if row["detail"] else words


def joined_lists(text):
    """JSON with each list of numbers on one line."""
    number = r"(?:-?[\d.]+(?:e[-+]?\d+)?|null)"
    joined = lambda found: "[" + ", ".join(found[0].strip("[]").replace("\n", "").replace(" ", "").split(",")) + "]"
    return re.sub(rf"\[\s*{number}(?:,\s*{number})*\s*\]", joined, text)
