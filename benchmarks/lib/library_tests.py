"""Tests of the estimates, of the refusal of results that cannot be repeated, of processes, and of the pages."""

import argparse
import contextlib
import copy
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import estimates
import figures
import pages
import processes
import provenance
import results
import tables


class Estimates(unittest.TestCase):
    # Hollander and Wolfe, Nonparametric Statistical Methods, 1973, p. 29.
    FIRST = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    SECOND = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]

    def test_known_data(self):
        samples = {"a": self.FIRST, "b": self.SECOND}
        of = estimates.estimate(estimates.pairs(samples, ["a", "b"], "difference"), "difference")
        self.assertEqual([0.46, 0.01, 0.786], [round(value, 6) for value in of])

    def test_one_outlier_does_not_move_the_estimate(self):
        figures = [1.0 + 0.001 * n for n in range(-10, 11)]
        middle, _, high = estimates.estimate([*figures[:-1], 50.0], "ratio")
        self.assertAlmostEqual(1, middle, delta=0.003)
        self.assertLess(high, 1.01)

    def test_the_approximation_continues_the_exact_distribution(self):
        exact = estimates.omitted_means(estimates.MAX_EXACT_PAIRS)
        self.assertLessEqual(abs(estimates.omitted_means(estimates.MAX_EXACT_PAIRS + 1) - exact), 20)
        self.assertEqual(0, estimates.omitted_means(estimates.MIN_PAIRS))

    def test_a_missing_sample_removes_its_pair(self):
        samples = {"a": [2.0, None, 6.0], "b": [1.0, 1.0, 2.0]}
        self.assertEqual([2, 3], estimates.pairs(samples, ["a", "b"], "ratio"))
        self.assertEqual([2 / 3], estimates.pairs({**samples, "c": [3.0, 1.0, None], "d": [1.0] * 3}, list("abcd"), "ratio"))

    def test_verdicts(self):
        limit = {"at_most": 1.1}
        self.assertEqual("holds", estimates.verdict((1.0, 0.95, 1.05), limit, "ratio", 20)[0])
        self.assertEqual("fails", estimates.verdict((1.2, 1.15, 1.25), limit, "ratio", 20)[0])
        self.assertEqual("not_judged", estimates.verdict((1.2, 1.15, 1.25), {}, "ratio", 20)[0])
        self.assertEqual("holds", estimates.verdict((0.002, -0.001, 0.003), {"at_most": 0.005}, "difference", 20)[0])
        self.assertEqual("inconclusive", estimates.verdict((1.0, None, None), limit, "ratio", 3)[0])

    def test_inconclusive_names_the_missing_pairs(self):
        # The estimate is half of the interval's upper part away from the limit, so four times the pairs settle it.
        verdict = estimates.verdict((1.0, 0.99**2, 1.01**2), {"at_most": 1.01}, "ratio", 20)
        self.assertEqual(("inconclusive", "the limit is in the interval; about 62 more pairs would settle it"), verdict)
        verdict = estimates.verdict((1.0, 0.99, 1.5), {"at_most": 1.0001}, "ratio", 20)
        self.assertIn("more than 2000 pairs", verdict[1])

    def test_a_wide_interval_names_the_missing_pairs(self):
        self.assertEqual("holds", estimates.verdict((0.9, 0.88, 0.92), {"within": 0.03}, "ratio", 20)[0])
        verdict = estimates.verdict((1.0, 1 / 1.05, 1.05), {"within": 0.03}, "ratio", 20)
        self.assertEqual(("inconclusive", "the interval is wider than ± 3 %; about 36 more pairs would settle it"), verdict)

    def test_a_count_is_judged_without_an_interval(self):
        of = estimates.estimate(estimates.pairs({"claim": [0, 1, None, 0]}, ["claim"], "count"), "count")
        self.assertEqual((1, 1, 1), of)
        self.assertEqual("holds", estimates.verdict(of, {"at_most": 1}, "count", 3)[0])
        self.assertEqual("fails", estimates.verdict(of, {"at_most": 0}, "count", 3)[0])
        self.assertEqual("holds", estimates.verdict((0, 0, 0), {"at_most": 0}, "count", 3)[0])
        self.assertEqual("fails", estimates.verdict((0, 0, 0), {"at_least": 1}, "count", 1)[0])


class Tables(unittest.TestCase):
    def table(self, ratios, **limit):
        part = results.Part("name", "?", "seconds", "", "ratio")
        for value in ratios:
            part.add("a", value)
            part.add("b", 1.0)
        part.row("label", ["a", "b"], {"a_seconds": 0.0021, "a_bytes": 3 << 20, "a_ratio": None}, {"a_ratio": "not read"}, **limit)
        return tables.part(part.json())

    def test_a_wide_interval_is_not_printed(self):
        text = self.table([0.01, 0.02, 0.5, 0.6, 0.7, 3.0, 100.0], at_most=1)
        self.assertRegex(text, r"\| – \| ≤ 1 \| inconclusive: the interval is too wide; about \d+ more pairs")
        self.assertNotIn("[0.", text)

    def test_a_row_with_units_and_an_unknown_value(self):
        text = self.table([0.9, 0.91, 0.92, 0.9, 0.89, 0.9, 0.9], at_most=1)
        self.assertIn("| label | 2.10 | 3.00 | unknown | 7 | 0.900 [0.895–0.910] | ≤ 1 | holds |", text)
        self.assertIn("|  | a, ms | a, MiB |", text)

    def test_a_row_with_a_count(self):
        part = results.Part("name", "?", "claims", "", "count")
        for value in (0, 1, 0):
            part.add("claim", value)
        part.row("claims", ["claim"], at_most=2)
        text = tables.part(part.json())
        self.assertIn("|  | samples | count | limit | verdict |", text)
        self.assertIn("| claims | 3 | 1 | ≤ 2 | holds |", text)


class Provenance(unittest.TestCase):
    def test_a_version_is_found_behind_announced_variables(self):
        said = "Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version \"25\" LTS\n"
        self.assertEqual("25 LTS", provenance.version("printf", "%s", said))

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        self.source, self.binary = self.root / "main.rs", self.root / "target/hugewise"
        self.binary.parent.mkdir()
        Path(self.root, ".gitignore").write_text("/target/\n")
        self.source.write_text("fn main() {}\n")
        self.binary.write_text("")
        self.binary.with_suffix(".d").write_text(f"{self.binary}: {self.source}\n")
        self.git("init", "-q")
        self.commit()

    def git(self, *words):
        subprocess.run(["git", "-C", self.root, "-c", "user.name=t", "-c", "user.email=t@example", *words], check=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-qm", "All")

    def test_a_clean_tree_is_accepted(self):
        self.assertIsNone(provenance.objection(self.root, self.binary))
        self.assertEqual((40, True), (len(provenance.tree(self.root)[0]), provenance.tree(self.root)[1]))

    def test_a_changed_tree_is_refused(self):
        self.source.write_text("fn main() { }\n")
        self.assertIn("uncommitted", provenance.objection(self.root, self.binary))

    def test_results_of_this_commit_do_not_change_the_tree(self):
        file = self.root / "benchmarks/run/results/a.json"
        file.parent.mkdir(parents=True)
        file.write_text("{}")
        self.assertIsNone(provenance.objection(self.root, self.binary))
        (file.parent.parent / "run").write_text("")
        self.assertIn("uncommitted", provenance.objection(self.root, self.binary))

    def test_an_old_or_foreign_binary_is_refused(self):
        later = self.binary.stat().st_mtime + 10
        os.utime(self.source, (later, later))
        self.assertIn("older than its sources", provenance.objection(self.root, self.binary))
        self.binary.with_suffix(".d").write_text(f"{self.binary}: /elsewhere/main.rs\n")
        self.assertIn("was not built from", provenance.objection(self.root, self.binary))

    def test_a_short_run_is_not_written_into_results(self):
        arguments = argparse.Namespace(hugewise=Path("/bin/true"), seed=1, out=results.BENCHMARKS / "run/results/a.json", quick=True)
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
            results.Run("run", arguments)
        self.assertIn("--quick is too short", said.getvalue())


def example():
    """A stored result of one part with one row."""
    part = results.Part("added", "?", "seconds", "", "difference")
    for n in range(8):
        part.add("with", 0.004 + n / 10000)
        part.add("without", 0.001)
    part.row("java, auto", ["with", "without"], {}, at_most=0.005)
    host = {"cpu": "CPU", "architecture": "x86_64", "cpus": 2, "memory_bytes": 1 << 30, "virtual": True}
    of = {
        "date": "2020-01-01T00:00:00+00:00", "commit": "0" * 40, "clean_tree": True, "host": host, "kernel": "6.18.1-x", "thp_mode": "madvise",
        "versions": {"java": "25"}, "seed": 1, "command": "benchmarks/run/run", "predicted": None, "duration_seconds": 60.0,
    }
    result = {"schema": results.SCHEMA, "benchmark": "run", "withdrawn": None, "provenance": of, "parts": [part.json()]}
    return json.loads(json.dumps(result))


class Results(unittest.TestCase):
    FILE = results.BENCHMARKS / "run/results/a.json"

    def test_a_result_follows_from_its_samples(self):
        self.assertEqual([], results.objections(self.FILE, example()))

    def test_a_typed_figure_is_found(self):
        result = example()
        result["parts"][0]["rows"][0]["estimate"] = 0.001
        self.assertIn("estimate is 0.001, but follows as 0.00335", results.objections(self.FILE, result)[0])

    def test_an_unclean_tree_is_found(self):
        result = example()
        result["provenance"]["clean_tree"] = False
        self.assertIn("clean tree", results.objections(self.FILE, result)[0])

    def test_a_withdrawn_result_gives_no_figure(self):
        withdrawn = copy.deepcopy(example())
        withdrawn["withdrawn"] = "another program ran"
        text = figures.Figures({"run": [(self.FILE, withdrawn)]})
        with self.assertRaises(figures.NotRecorded):
            text("run/added")
        self.assertIn("is withdrawn: another program ran", text("run/runs"))
        text = figures.Figures({"run": [(self.FILE, withdrawn), (self.FILE, example())]})
        self.assertIn("| 8 | 3.35 [3.10–3.60] | ≤ 5 | holds |", text("run/added"))


class Processes(unittest.TestCase):
    def ended(self, pid):
        for _ in range(500):
            # A process whose parent has ended can remain as a zombie.
            try:
                if ") Z " in Path(f"/proc/{pid}/stat").read_text():
                    return True
            except OSError:
                return True
            time.sleep(0.01)
        return False

    def test_a_process_ends_with_its_block(self):
        with self.assertRaises(KeyboardInterrupt):
            with processes.process([sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(60)"]) as pid:
                raise KeyboardInterrupt
        self.assertTrue(self.ended(pid))

    def test_a_neighbour_ends_with_its_children(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "pid")
            neighbour = processes.Neighbour(["sh", "-c", f"sleep 60 & echo $! >> {file}; wait"], 1, lambda order: order.uniform(0.02, 0.1))
            begin = time.monotonic()
            with neighbour:
                # On a busy machine the first phases can be too short to start the child.
                while not (file.exists() and file.read_text() and len(neighbour.phases) > 2) and not neighbour.failure:
                    time.sleep(0.01)
            pids = file.read_text().split()
        self.assertIsNone(neighbour.failure)
        self.assertTrue(all(self.ended(pid) for pid in pids))
        self.assertTrue(0 < neighbour.busy_ratio(begin, time.monotonic()) < 1)

    def test_a_neighbour_that_exits_is_reported(self):
        with processes.Neighbour(["false"], 1, lambda _: 0.1) as neighbour:
            neighbour.thread.join()
        self.assertIn("false exited with status 1", neighbour.failure)

    def test_the_output_of_a_finished_program(self):
        ended = processes.finished(["sh", "-c", "echo out; echo err >&2; exit 3"])
        self.assertEqual((3, "out\n", "err\n"), (ended.returncode, ended.stdout, ended.stderr))


class Pages(unittest.TestCase):
    PAGE = "Before\n<!-- data: a/b -->\nold\n<!-- /data -->\nAfter\n"

    def test_a_page_that_differs_is_named_and_written_once(self):
        new, differing = pages.rendered(self.PAGE, lambda name: f"new {name}")
        self.assertEqual(["a/b"], differing)
        self.assertEqual("Before\n<!-- data: a/b -->\nnew a/b\n<!-- /data -->\nAfter\n", new)
        self.assertEqual((new, []), pages.rendered(new, lambda name: f"new {name}"))

    def test_unknown_names_and_single_markers(self):
        with self.assertRaises(KeyError):
            figures.Figures({})("nothing/runs/x")
        self.assertEqual(1, pages.unpaired(self.PAGE.replace("<!-- /data -->", "")))
        self.assertEqual(0, pages.unpaired(self.PAGE))


if __name__ == "__main__":
    unittest.main()
