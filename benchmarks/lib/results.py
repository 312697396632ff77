"""One run of a benchmark: its options, its parts with samples and rows, and its JSON.

benchmarks/README.md describes the JSON.
"""

import argparse
import datetime
import json
import os
import random
import shlex
import signal
import statistics
import sys
import time
from pathlib import Path

import estimates
import provenance
import tables

ROOT = Path(__file__).resolve().parent.parent.parent
BENCHMARKS = ROOT / "benchmarks"
SCHEMA = "hugewise.benchmark/1"
# Significant digits of a sample.
DIGITS = 6


def stop(message):
    """Ends a benchmark that cannot run."""
    print(f"{Path(sys.argv[0])}: {message}", file=sys.stderr)
    sys.exit(2)


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def options(doc):
    """The options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    parser.add_argument("--hugewise", type=Path, default=target / "release/hugewise")
    parser.add_argument("--seed", type=int, default=1, help="seed of the order")
    parser.add_argument("--predicted", help="expected result, written before the run")
    parser.add_argument("--out", type=Path, help="file of the result [default: results/DATE-COMMIT.json beside the script]")
    parser.add_argument("--quick", action="store_true", help="smallest run, to test the script; needs --out to be written")
    return parser


class Run:
    """A run of a benchmark, from the check of its destination to the written file."""

    def __init__(self, name, arguments, suffix=""):
        # SIGTERM ends it as Ctrl-C does: open `with` blocks end their processes.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        arguments.hugewise = arguments.hugewise.resolve()
        if not arguments.hugewise.is_file():
            stop(f"{arguments.hugewise} does not exist: run 'make build', or name it with --hugewise")
        self.name, self.arguments = name, arguments
        self.order = random.Random(arguments.seed)
        self.versions, self.parts = {"hugewise": provenance.version(arguments.hugewise, "--version")}, []
        self.begin, self.date = time.monotonic(), datetime.datetime.now(datetime.timezone.utc)
        self.commit, self.clean = provenance.tree(ROOT)
        self.file = self.destination(suffix)

    def destination(self, suffix):
        """The file to write, or `None`; refuses a file in results/ that a later run could not repeat."""
        out, results = self.arguments.out, BENCHMARKS / self.name / "results"
        if out is None and self.arguments.quick:
            return None
        if out is None or out.resolve().is_relative_to(BENCHMARKS):
            objection = "--quick is too short" if self.arguments.quick else provenance.objection(ROOT, self.arguments.hugewise)
            if objection:
                stop(f"no result is written into {results}: {objection}; --out names another file")
        if out:
            return out
        stem = f"{self.date.date()}-{self.commit[:7]}{suffix}"
        names = [f"{stem}.json", *(f"{stem}-{n}.json" for n in range(2, 100))]
        return next(results / name for name in names if not (results / name).exists())

    def part(self, name, question, unit, design, quantity="ratio"):
        """A new part: samples in `unit`, compared by `quantity`."""
        part = Part(name, question, unit, design, quantity)
        self.parts.append(part)
        return part

    def json(self):
        source = {
            "date": self.date.isoformat(timespec="seconds"),
            "commit": self.commit,
            "clean_tree": self.clean,
            "host": provenance.host(),
            "kernel": os.uname().release,
            "thp_mode": provenance.thp_mode(),
            "versions": provenance.with_reasons(self.versions, dict.fromkeys(self.versions, "the program does not report it")),
            "seed": self.arguments.seed,
            "command": shlex.join([*provenance.assignments(), "benchmarks/" + self.name + "/run", *sys.argv[1:]]),
            "predicted": self.arguments.predicted,
            "duration_seconds": round(time.monotonic() - self.begin, 1),
            "load_average": os.getloadavg()[2],
        }
        reasons = {
            "commit": "git does not report it",
            "clean_tree": "git does not report it",
            "thp_mode": "the kernel has no transparent huge pages",
            "predicted": "no --predicted was given",
        }
        parts = [part.json() for part in self.parts]
        of = {"schema": SCHEMA, "benchmark": self.name, "withdrawn": None}
        return {**of, "provenance": provenance.with_reasons(source, reasons), "parts": parts}

    def finish(self):
        """Prints the tables, writes the file, and exits: 0 if all limits hold, else 1."""
        progress("")
        result = self.json()
        for part in result["parts"]:
            print(f"{part['name']}: {part['question']}\n\n{tables.part(part)}\n")
        self.write(result)
        verdicts = {row["verdict"] for part in result["parts"] for row in part["rows"]}
        sys.exit(0 if verdicts <= {"holds", "not_judged"} else 1)

    def write(self, result=None):
        """Writes the file, if there is one."""
        if self.file:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(tables.joined_lists(json.dumps(result or self.json(), indent=1, ensure_ascii=False)) + "\n")
            print(f"written to {self.file}")


class Part:
    """A question that a benchmark answers."""

    def __init__(self, name, question, unit, design, quantity):
        self.about = {"name": name, "question": question, "unit": unit, "design": design, "quantity": quantity}
        self.samples, self.rows, self.notes = {}, [], []
        # Results of other programs that the rows summarise, by the name of the JSON field.
        self.sources = {}

    def add(self, name, value):
        """A sample of one side; `None` keeps the place of a pair without it."""
        self.samples.setdefault(name, []).append(rounded(value))

    def median(self, name):
        """Median of the samples of one side; `None` without any."""
        known = [value for value in self.samples.get(name, []) if value is not None]
        return statistics.median(known) if known else None

    def row(self, label, compares, values=None, unknown=None, **limit):
        """A row with the estimate of the compared samples; `limit` is `at_least`, `at_most`, both or neither."""
        values = {name: rounded(value) for name, value in (values or {}).items()}
        row = {"label": label, "values": values, "compares": compares, **computed(self.about, self.samples, compares, limit)}
        self.rows.append({**row, "unknown": unknown} if unknown else row)

    def left_out(self, label, reason):
        """A row that was not measured."""
        empty = {"label": label, "values": {}, "compares": [], "pairs": 0, "limit": {}, "estimate": None, "low": None, "high": None}
        unknown = {name: reason for name in ("estimate", "low", "high")}
        self.rows.append({**empty, "verdict": "left_out", "detail": reason, "unknown": unknown})

    def json(self):
        return {**self.about, "rows": self.rows, "notes": self.notes, "samples": self.samples, **self.sources}


def computed(about, samples, compares, limit):
    """The fields of a row that follow from its samples."""
    figures = estimates.pairs(samples, compares, about["quantity"])
    of = estimates.estimate(figures, about["quantity"])
    verdict, detail = estimates.verdict(of, limit, about["quantity"], len(figures))
    numbers = {name: rounded(value) for name, value in zip(("estimate", "low", "high"), of)}
    fields = {"pairs": len(figures), "limit": limit, **numbers, "verdict": verdict, "detail": detail}
    return provenance.with_reasons(fields, {name: detail for name in numbers})


def rounded(value):
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def stored():
    """All results of benchmarks/*/results by benchmark, the newest first: (file, result)."""
    found = {}
    for file in sorted(BENCHMARKS.glob("*/results/*.json")):
        try:
            result = json.loads(file.read_text())
        except ValueError as error:
            sys.exit(f"{file}: {error}")
        # Rates and hit ratios of simulations are lists.
        if isinstance(result, dict):
            found.setdefault(result.get("benchmark"), []).append((file, result))
    for results in found.values():
        results.sort(key=lambda one: one[1].get("provenance", {}).get("date", ""), reverse=True)
    return found


def objections(file, result):
    """Why a stored result may not be used: another schema, unclean, or figures that do not follow from its samples."""
    if result.get("schema") != SCHEMA:
        return [f"its schema is {result.get('schema')}, not {SCHEMA}"]
    found = []
    source = result["provenance"]
    if source["clean_tree"] is not True or len(source["commit"] or "") != 40:
        found.append("it is not from a clean tree of a known commit")
    if result["benchmark"] != file.parent.parent.name:
        found.append(f"it is a result of {result['benchmark']}")
    for part in result["parts"]:
        for row in part["rows"]:
            expected = computed(part, part["samples"], row["compares"], row["limit"]) if row["compares"] else {}
            found += [
                f"{part['name']}: {row['label']}: {name} is {row[name]}, but follows as {expected[name]} from the samples"
                for name in ("pairs", "estimate", "low", "high", "verdict")
                if name in expected and not same(row[name], expected[name])
            ]
    return found


def same(one, other):
    """Equal up to the rounding of a logarithm on another machine."""
    numbers = isinstance(one, float) and isinstance(other, float)
    return abs(one - other) <= 1e-5 * abs(other) + 1e-12 if numbers else one == other
