"""The texts of markers in the documentation, by name: `BENCHMARK/runs`, `BENCHMARK/PART`, `compare/simulation`,
`cache/simulation`, `cache/summary`."""

import json

import cache_simulation
import results
import simulation
import tables

CACHES = {"cache/simulation": cache_simulation.table, "cache/summary": cache_simulation.summary}


class NotRecorded(Exception):
    """No run is recorded that measured what a marker shows."""


def simulated(benchmark):
    return json.loads((results.BENCHMARKS / benchmark / "results/simulation.json").read_text())


class Figures:
    """All stored results, and the texts made from them."""

    def __init__(self, stored):
        self.stored = stored

    def __call__(self, name):
        benchmark, _, part = name.partition("/")
        if name == "compare/simulation":
            return simulation.table(simulated("compare"))
        if name in CACHES:
            return CACHES[name](simulated("cache"))
        if part == "runs":
            return self.runs(benchmark)
        result, found = self.newest(benchmark, part)
        if not found:
            raise NotRecorded(name)
        return f"{conditions(result)}\n\n{SUMMARIES.get(name, tables.part)(found)}"

    def runs(self, benchmark):
        of = self.stored.get(benchmark)
        if not of:
            raise NotRecorded(f"{benchmark}/runs")
        return "\n\n".join(run(file, result) for file, result in of)

    def newest(self, benchmark, name):
        """The newest result that measured this part and is not withdrawn, and the part."""
        if not (results.BENCHMARKS / benchmark).is_dir():
            raise KeyError(benchmark)
        for _, result in self.stored.get(benchmark, []):
            part = next((part for part in result["parts"] if part["name"] == name), None)
            is_measured = part and any(row["verdict"] != "left_out" for row in part["rows"])
            if is_measured and not result["withdrawn"]:
                return result, part
        return None, None


def machine(of):
    host = of["host"]
    kind = {True: "virtual machine", False: "no virtual machine", None: "machine"}[host["virtual"]]
    return f"{kind} with {host['cpus']} CPUs"


def versions(of):
    return [f"{name} {version or 'unknown'}" for name, version in of["versions"].items() if name != "unknown"]


def conditions(result):
    """Machine, versions and commit of a result, in one line."""
    of = result["provenance"]
    compared = ", ".join(text for text in versions(of) if not text.startswith("hugewise "))
    return f"Linux {of['kernel'].split('-')[0]}, {machine(of)} ({of['host']['cpu'] or 'CPU unknown'}); {compared}; " \
        f"commit {of['commit'][:7]}, {of['date'][:10]}; 95 % intervals:"


def run(file, result):
    """A run in full: its provenance and tables, or why it is withdrawn."""
    of = result["provenance"]
    title = f"### {of['date'][:10]}, commit {of['commit'][:7]}\n\n"
    if result["withdrawn"]:
        return f"{title}[{file.name}](results/{file.name}) is withdrawn: {result['withdrawn']}"
    host = of["host"]
    facts = {
        "data": f"[{file.name}](results/{file.name})",
        "machine": f"{host['cpu'] or host['architecture']}, {machine(of)}, {host['memory_bytes'] / (1 << 30):.1f} GiB",
        "kernel": f"{of['kernel']}, transparent huge pages {of['thp_mode'] or 'unknown'}",
        "versions": "; ".join(versions(of)),
        "command": f"`{of['command']}`, {of['duration_seconds'] / 60:.1f} minutes, seed {of['seed']}",
        "predicted": of["predicted"] or "nothing",
    }
    lines = "\n".join(f"- {name}: {fact}" for name, fact in facts.items())
    parts = [f"#### {part['name']}\n\n{part['question']} {part['design']}\n\n{tables.part(part)}" for part in result["parts"]]
    return "\n\n".join([title + lines, *parts])


def pretouch_against(part):
    """Per method and backing the lowest and the highest speed over sizes and numbers of threads."""
    backings = ("base", "thp", "hugetlb")
    cells = {}
    for row in part["rows"]:
        if row["verdict"] != "left_out":
            case, _, method = row["label"].partition(": ")
            cells.setdefault(method, {}).setdefault(case.split(" on ")[1].split(",")[0], []).append(row)
    rows = [[method, *(extremes(of.get(backing, [])) for backing in backings)] for method, of in cells.items()]
    return tables.markdown(["", *backings], rows)


def extremes(rows):
    known = sorted(row["estimate"] for row in rows if tables.interval(row, "ratio") != "–")
    verdicts = [row["verdict"] for row in rows]
    counts = "; ".join(f"{name.replace('_', ' ')}: {verdicts.count(name)}" for name in ("holds", "inconclusive", "fails") if name in verdicts)
    ends = list(dict.fromkeys(f"{estimate:.2f}" for estimate in (known[:1] + known[-1:])))
    text = " to ".join(ends) or "–"
    return f"{text} ({counts})" if counts else text


def allocators(part):
    """Per pattern the time of HugeAllocator, and its ratio to each other allocator."""
    cells, others = {}, []
    for row in part["rows"]:
        case, _, pair = row["label"].partition(": ")
        other = pair.split(" / ")[-1]
        cells.setdefault(case, {})[other] = row
        if other not in others:
            others.append(other)
    rows = []
    for case, of in cells.items():
        times = [row["values"]["time_seconds"] for row in of.values() if row["values"]]
        ns = f"{1e9 * times[0]:.1f}" if times else "–"
        rows.append([case, ns, *(extremes([of[other]] if other in of else []).split(" ")[0] for other in others)])
    return tables.markdown(["", "HugeAllocator, ns", *others], rows)


# Tables other than that of the part.
SUMMARIES = {"pretouch/against": pretouch_against, "java/allocators": allocators}
