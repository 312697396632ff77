"""The tables of hit ratios from benchmarks/cache/results/simulation.json."""

import tables

CAFFEINE, CHOSEN = "Caffeine", "segments, W-TinyLFU"
# Keys of a trace of which 1 % are more than the segments of the simulation.
MIN_KEYS = 10_000


def table(rows):
    """All hit ratios, one row for each trace and capacity."""
    policies = list(rows[0]["hit_ratios"])
    head = ["trace", "keys", "capacity", *policies, "difference to Caffeine", "bytes moved per inserted byte"]
    body = [[name(row), f"{row['keys']:,}", capacity(row), *(percent(row["hit_ratios"][of]) for of in policies),
             points(difference(row)), f"{row['moved_ratio']:.2f}"] for row in rows]
    return tables.markdown(head, body)


def summary(rows):
    """How many traces are within 0.5 points of Caffeine, and the largest loss."""
    lines = []
    for kind in ("entries", "bytes"):
        of = [row for row in rows if row["capacity_in"] == kind and row["keys"] >= MIN_KEYS]
        worst = {}
        for row in of:
            worst[row["trace"]] = min(worst.get(row["trace"], 100), difference(row))
        near = sum(loss >= -0.5 for loss in worst.values())
        least = min(of, key=difference)
        lines.append(f"- Capacity in {kind}: in {near} of {len(worst)} traces with at least {MIN_KEYS:,} keys, the hit ratio is at no size more "
                     f"than 0.5 points below Caffeine's; the mean difference is {points(sum(map(difference, of)) / len(of))} points, the "
                     f"largest loss {points(difference(least))} ({least['trace']}, {capacity(least)}).")
    moved = max(row["moved_ratio"] for row in rows)
    small = [row for row in rows if row["keys"] < MIN_KEYS]
    least = min(small, key=difference)
    lines.append(f"- In traces with fewer keys, 1 % are 10 to 99 entries, less than a cache of segments can be: the largest loss is "
                 f"{points(difference(least))} ({least['trace']}, {capacity(least)}).")
    lines.append(f"- At most {moved:.2f} bytes are moved for each inserted one.")
    return "\n".join(lines)


def difference(row):
    return 100 * (row["hit_ratios"][CHOSEN] - row["hit_ratios"][CAFFEINE])


def name(row):
    return row["trace"] + (", by bytes" if row["capacity_in"] == "bytes" else "")


def capacity(row):
    return f"{row['capacity_ratio']:.0%}"


def percent(ratio):
    return f"{100 * ratio:.2f}"


def points(value):
    return f"{value:+.2f}".replace("-", "−")
