"""The table of docs/method.md from the rates of simulated comparisons, benchmarks/compare/results/simulation.json."""

import tables

NATIVE, JAVA, RUNS = "Turns { start: 0.35, turn: 0.02 }", "Turns { start: 2.0, turn: 0.02 }", "Rounds { run: 2.0 }"
# Standard deviation of processes, as simulated where no other is named.
PROCESS_NOISE = 0.01
UNEQUAL = 0.85


def table(rates):
    head = ["", "false claims, arms equal", "coverage of the printed interval", f"verdict at a ratio of {UNEQUAL}", "median time, s"]
    rows = []
    for name, workload in (("native turns, start 0.35 s", NATIVE), ("Java turns, start 2 s", JAVA)):
        of = [rate for rate in rates if rate["workload"] == workload]
        usual = [rate for rate in of if rate["process_noise_ratio"] == PROCESS_NOISE]
        rows.append(row(name, [rate for rate in usual if rate["host"] != "Neighbours"]))
        rows.append(row(f"{name}, 1/f, processes differ by 0.5 or 3 %", [r for r in of if r["process_noise_ratio"] in (0.005, 0.03)]))
        rows.append(row(f"{name}, 1/f, processes differ by 10 %", [r for r in of if r["process_noise_ratio"] == 0.1]))
        rows.append(row(f"{name}, busy neighbours in a sixth of the time", [r for r in usual if r["host"] == "Neighbours"]))
    runs = [rate for rate in rates if rate["workload"] == RUNS]
    rows.append(row("runs of 2 s with noise of 1 to 12 %", runs))
    noisiest = max(runs, key=lambda rate: (rate["noise_ratio"], rate["true_ratio"]))
    both = f"With runs that differ by {percent([noisiest['noise_ratio']], 0)}, both of two equal arms get a verdict in " \
        f"{percent([noisiest['verdicts_ratio']], 0)} of experiments; else at least one is `inconclusive`."
    return f"{tables.markdown(head, rows)}\n\n{both}"


def row(name, rates):
    equal = [rate for rate in rates if rate["true_ratio"] == 1]
    unequal = [rate for rate in rates if rate["true_ratio"] == UNEQUAL]
    limits = ", ".join(sorted({f"within {rate['limit_seconds']:.0f} s" for rate in rates}))
    return [
        f"{name}, {limits}",
        percent([rate["false_claims_ratio"] for rate in equal], 1),
        percent([rate["interval_coverage_ratio"] for rate in rates], 1),
        percent([rate["verdicts_ratio"] for rate in unequal], 1),
        span([f"{rate['median_seconds']:.0f}" for rate in sorted(unequal, key=lambda rate: rate["median_seconds"])]),
    ]


def percent(values, digits):
    return span([f"{100 * value:.{digits}f}" for value in sorted(values)]) + " %"


def span(texts):
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"
