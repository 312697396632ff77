"""Tables and answers from the measurements: one reading per cell and round."""

import math
import statistics


# Access patterns of HashProbe. The first is the obvious one; docs/java.md recommends the next two.
PATTERNS = {
    "get": "`segment.get`, segment in a field",
    "slice": "a slice per object, unaligned layouts",
    "constantSlice": "the same, segment in a constant",
    "everything": "`get` by address, unchecked",
    "everythingSlice": "slices by address, unchecked",
}


class Answers:
    """Whether the claims hold: yes, no, inconclusive."""

    def __init__(self):
        self.given = []
        self.incomplete = False

    def within(self, ratio, low, high):
        """Whether the whole interval of a ratio lies between two bounds. One round is inconclusive."""
        _, begin, end = ratio or (0, 0, 0)
        if begin == end:
            answer = "inconclusive"
        else:
            answer = "yes" if low <= begin and end <= high else "no" if end < low or begin > high else "inconclusive"
        self.given.append(answer)
        return answer

    def all_hold(self):
        return not self.incomplete and all(answer == "yes" for answer in self.given)


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]


def heap(seen, _answers):
    rows = []
    for size in dict.fromkeys(size for size, _ in seen):
        row = [f"{int(size):,}"]
        for name in ("base", "thp", "explicit"):
            row += [ns(seen.get((size, name))), huge(seen.get((size, name)), "heap.huge")]
        row += [text(ratio(seen, (size, name), (size, "base"))) for name in ("thp", "explicit")]
        rows.append(row)
    head = ["bytes", "base, ns", "heap huge", "THP, ns", "heap huge", "explicit, ns", "heap huge", "THP / base", "explicit / base"]
    return ["## ByteArrayTouch, heap of 1 GiB", "", *table(head, rows)]


def segments(seen, answers):
    rows = [[memory if len(memory) > 1 else memory[0], ns(readings), huge(readings, "memory.huge"), text(ratio(seen, memory, ("jdk",)))]
            for memory, readings in seen.items() if memory[0] != "native"]
    lines = ["## Random reads of 8 bytes in a segment of 2 GiB", "",
             *table(["memory", "ns", "huge", "to Arena.ofShared (jdk)"], rows)]
    rows = []
    for backing in ("base", "thp", "hugetlb"):
        of = ratio(seen, (f"arena:{backing}",), (f"raw:{backing}",))
        rows.append([backing, text(of), answers.within(of, 0.97, 1.03)])
    lines += table(["backing", "HugeArena / mapped by hand", "within 3 %"], rows)
    rows = []
    for backing in ("thp", "hugetlb"):
        java = logs(seen, (f"arena:{backing}",), ("jdk",))
        native = logs(seen, ("native", backing), ("native", "base"))
        both = interval([a - b if a is not None and b is not None else None for a, b in zip(java, native)])
        rows.append([backing, text(interval(java)), text(interval(native)),
                     huge(seen.get(("native", backing)), "memory.huge"), text(both), answers.within(both, 0.95, 1.05)])
    return lines + table(["backing", "HugeArena / Arena.ofShared", "hugewise bench touch, to base", "its coverage", "quotient of both", "within 5 %"], rows)


def probe(seen, answers):
    rows = []
    for name, meant in PATTERNS.items():
        of = [(name, backing) for backing in ("base", "thp")]
        if any(cell in seen for cell in of):
            rows.append([meant, *(ns(seen.get(cell)) for cell in of), huge(seen.get(of[1]), "memory.huge"), text(ratio(seen, of[1], of[0]))])
    lines = ["## A lookup in a hash table of 2 GiB on a HugeArena, not inlined", "",
             *table(["access pattern", "base, ns", "THP, ns", "huge", "THP / base"], rows)]
    rows = []
    for name, most in (("slice", 1), ("constantSlice", 0.9)):
        for backing in ("base", "thp"):
            of = ratio(seen, (name, backing), ("get", backing))
            rows += [[PATTERNS[name], backing, text(of), f"{most}: {answers.within(of, 0, most)}"]] if of else []
    return lines + table(["access pattern", "backing", "to `segment.get`", "at most"], rows)


def allocate(seen, answers):
    lines = ["## One free and one allocate, of 256 live blocks of a thread", ""]
    names = list(dict.fromkeys(name for name, _, _ in seen))
    for threads in ("1", "2"):
        sizes = list(dict.fromkeys(size for _, size, of in seen if of == threads))
        rows = [[name, *(ns(seen.get((name, size, threads))) for size in sizes), least_huge(seen, name, threads)] for name in names]
        lines += [f"{threads} thread{'s, each' if threads == '2' else ''}: ns", "", *table(["bytes", *(f"{int(size):,}" for size in sizes), "huge"], rows)]
    rows = []
    for ours, theirs in (("huge by offset", "malloc by address"), ("huge by segment", "malloc by segment"), ("huge by offset", "malloc, critical")):
        for size, threads in dict.fromkeys((size, threads) for _, size, threads in seen):
            of = ratio(seen, (ours, size, threads), (theirs, size, threads))
            if of:
                # No claim for critical calls: a thread that waits in one delays the safepoints of all others.
                claim = "–" if "critical" in theirs else answers.within(of, 0, 1)
                rows.append([f"{ours} / {theirs}", f"{int(size):,}", threads, text(of), claim])
    return lines + table(["ratio of times", "bytes", "threads", "ratio", "at most 1"], rows)


def pretouch(seen, _answers):
    rows = [[memory, ns(readings), huge(readings, "memory.huge"), f"{statistics.median(r['faults'] for r in readings if r):,.0f}"]
            for (memory,), readings in seen.items()]
    return ["## Reserving and populating 1 GiB", "",
            "The arena uses all CPUs, the others one thread. Coverage is that of the whole JVM at the largest sample,",
            "taken before all is resident. The page faults show the page size: 1 GiB is 262,144 base pages or 512 huge pages.", "",
            *table(["memory", "ms", "huge", "page faults"], rows)]


# --- Numbers -------------------------------------------------------------------------------------


def ns(readings):
    return f"{statistics.median(r['best'] for r in readings if r):.3g}" if readings else "–"


def huge(readings, name):
    shares = [r[name] for r in readings or [] if r and isinstance(r.get(name), (int, float))]
    return f"{min(shares):.0f} %" if shares else "unknown"


def least_huge(seen, name, threads):
    return huge([r for (of, _, t), readings in seen.items() if of == name and t == threads for r in readings], "memory.huge")


def logs(seen, of, to):
    """Logarithms of the ratios within rounds."""
    if not seen.get(of) or not seen.get(to):
        return []
    return [math.log(a["best"] / b["best"]) if a and b else None for a, b in zip(seen[of], seen[to])]


def ratio(seen, of, to):
    return interval(logs(seen, of, to))


def text(ratio):
    if not ratio:
        return "–"
    middle, low, high = ratio
    return f"{middle:.3f}" if low == high else f"{middle:.3f} [{low:.3f}–{high:.3f}]"


def interval(logs):
    """The median ratio, and its 95 % interval by order statistics; with fewer than 6 rounds, which have no such
    interval, minimum and maximum. One round disturbed by other load does not change it.

    Rounds without a reading do not count; None if no round has one."""
    logs = sorted(log for log in logs if log is not None)
    if not logs:
        return None
    n = len(logs)
    # Omits as many values at each end as the binomial distribution allows.
    outside, out = 2 * 0.5**n, 0
    while n > 5 and outside + 2 * math.comb(n, out + 1) * 0.5**n <= 0.05:
        out += 1
        outside += 2 * math.comb(n, out) * 0.5**n
    return [math.exp(x) for x in (statistics.median(logs), logs[out], logs[n - 1 - out])]
