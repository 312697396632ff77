"""Paired estimates: the Hodges-Lehmann estimate, its 95 % interval, and the verdict on a limit.

A *quantity* is `ratio` (a quotient of two or of two pairs of samples), `difference` (of two samples), `value`
(one sample) or `count` (the sum of samples of 0 and 1). Ratios and values are positive and are estimated by their
logarithms; differences are not. A count has no interval: its bounds are the count.
"""

import math
import statistics

# An interval whose bounds differ by a larger factor gives no figure.
MAX_INTERVAL_FACTOR = 2
# Fewer pairs have no 95 % interval.
MIN_PAIRS = 6
# Up to this number of pairs, the distribution of the signed ranks is computed; above, it is approximated.
MAX_EXACT_PAIRS = 50
# More additional pairs than this factor of the existing ones are not suggested.
MAX_MORE_PAIRS_FACTOR = 100


def pairs(samples, compares, quantity):
    """The compared figure within each pair, without the pairs in which a sample is `None`."""
    found = []
    for values in zip(*(samples[name] for name in compares)):
        if None in values:
            continue
        if quantity == "difference":
            found.append(values[0] - values[1])
        elif len(values) == 4:
            found.append(values[0] / values[1] / (values[2] / values[3]))
        else:
            found.append(values[0] / values[1] if len(values) == 2 else values[0])
    return found


def estimate(figures, quantity):
    """(estimate, low, high); the bounds are `None` with fewer than MIN_PAIRS figures, all three without any."""
    if not figures:
        return None, None, None
    if quantity == "count":
        return (sum(figures),) * 3
    if quantity == "difference":
        return hodges_lehmann(figures)
    if min(figures) <= 0:
        return None, None, None
    logs = hodges_lehmann([math.log(figure) for figure in figures])
    return tuple(None if log is None else math.exp(log) for log in logs)


def hodges_lehmann(values):
    """The median of the means of all pairs of values, and its 95 % interval by Wilcoxon's signed ranks.

    A mean would follow the few values that other load on the machine changed.
    """
    count = len(values)
    means = sorted((a + b) / 2 for at, a in enumerate(values) for b in values[at:])
    if count < MIN_PAIRS:
        return statistics.median(means), None, None
    omitted = omitted_means(count)
    return statistics.median(means), means[omitted], means[-1 - omitted]


def omitted_means(count):
    """Number of means of pairs below the 95 % interval of so many values; as many lie above."""
    if count > MAX_EXACT_PAIRS:
        half = 1.96 * math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
        return math.floor(count * (count + 1) / 4 - half)
    # Number of sets of ranks with each sum.
    sets = [1]
    for rank in range(1, count + 1):
        sets = [(sets[n] if n < len(sets) else 0) + (sets[n - rank] if n >= rank else 0) for n in range(len(sets) + rank)]
    below, omitted = 0, -1
    while below + sets[omitted + 1] <= 0.025 * 2**count:
        below += sets[omitted + 1]
        omitted += 1
    return omitted


def verdict(of, limit, quantity, count):
    """(verdict, detail) on an estimate with its bounds.

    `limit` has `at_least`, `at_most`, both, or neither. Verdicts: `holds` and `fails` if the whole interval agrees,
    else `inconclusive`; `not_judged` without a limit. The detail of `inconclusive` says how to settle it.
    `within` limits the distance of the bounds from the estimate, as a ratio: a wider interval is `inconclusive`.
    """
    middle, low, high = of
    noun = "samples" if quantity in ("value", "count") else "pairs"
    if middle is None and count:
        return "inconclusive", "a figure is zero or negative, so it has no ratio"
    if low is None:
        return "inconclusive", f"a 95 % interval needs at least {MIN_PAIRS} {noun}"
    excess = excess_width(low, high, limit, quantity)
    if excess > 1:
        return unsettled("the interval is too wide", noun, count, count * excess**2)
    if within := limit.get("within"):
        half = max(middle / low, high / middle) - 1
        if half > within:
            return unsettled(f"the interval is wider than ± {100 * within:g} %", noun, count, count * (half / within) ** 2)
    bounds = [bound for bound in (limit.get("at_least"), limit.get("at_most")) if bound is not None]
    if not bounds:
        return ("holds" if within else "not_judged"), ""
    if not any(low < bound < high for bound in bounds):
        inside = low >= limit.get("at_least", -math.inf) and high <= limit.get("at_most", math.inf)
        return ("holds" if inside else "fails"), ""
    scale = scale_of(quantity)
    half = max(scale(middle) - scale(low), scale(high) - scale(middle))
    distance = min(abs(scale(middle) - scale(bound)) for bound in bounds)
    return unsettled("the limit is in the interval", noun, count, count * (half / distance) ** 2 if distance else math.inf)


def scale_of(quantity):
    """The scale on which estimates and intervals are formed."""
    return (lambda x: x) if quantity == "difference" else math.log


def excess_width(low, high, limit, quantity):
    """Width of an interval as a multiple of the widest that is printed: for differences that of the limit."""
    if quantity == "count":
        return 0
    scale = scale_of(quantity)
    widest = limit.get("at_most", math.inf) if quantity == "difference" else math.log(MAX_INTERVAL_FACTOR)
    return (scale(high) - scale(low)) / widest


def unsettled(reason, noun, count, needed):
    """The width of an interval falls with the square root of the number of pairs."""
    if needed > MAX_MORE_PAIRS_FACTOR * count:
        return "inconclusive", f"{reason}; more than {round_up(MAX_MORE_PAIRS_FACTOR * count)} {noun} would be needed"
    return "inconclusive", f"{reason}; about {round_up(max(1, math.ceil(needed - count)))} more {noun} would settle it"


def round_up(count):
    """With at most two significant digits."""
    step = 10 ** max(0, len(str(count)) - 2)
    return math.ceil(count / step) * step
