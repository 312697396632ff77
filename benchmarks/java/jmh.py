"""Runs of single JMH benchmarks, and the huge pages that they need."""

import contextlib
import fcntl
import json
import os
import subprocess
import tempfile
from pathlib import Path

from turns import CannotRun

POOL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
STATE = Path("/run/hugewise")
PROFILER = "io.hugewise.jmh.HugePagesProfiler"
SECONDS = {"ns/op": 1e-9, "us/op": 1e-6, "ms/op": 1e-3, "s/op": 1}


def iterations(include, is_short):
    """JMH's warm-up and iterations: shorter for allocators, which warm up faster and are many."""
    if include == "Pretouch":
        return ["-wi", "1", "-i", "3"]
    if "Allocate" in include:
        return ["-wi", "3", "-w", "200ms", "-i", "5", "-r", "100ms"]
    return ["-wi", "2", "-w", "300ms", "-i", "3", "-r", "200ms"] if is_short else ["-wi", "3", "-w", "400ms", "-i", "5", "-r", "300ms"]


def measure(arguments, include, parameters, flags=(), environment=None, java=None):
    """The fastest iteration of one fork: seconds per operation, coverage of the heap and of all memory, page faults."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        command = [arguments.java, "-jar", str(arguments.jar), include, "-f", "1", *iterations(include, arguments.quick), "-foe", "true"]
        command += ["-jvm", java or arguments.java, "-prof", PROFILER, "-rf", "json", "-rff", str(result)]
        for name, value in parameters.items():
            command += ["-p", f"{name}={value}"]
        if flags:
            command += ["-jvmArgs", " ".join(flags)]
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | (environment or {}))
        results = json.loads(result.read_text()) if ran.returncode == 0 and result.exists() else []
        if len(results) != 1:
            said = [line.strip() for line in ran.stdout.split("\n") if "Exception" in line or "rror" in line]
            raise CannotRun(said[0] if said else f"{include} gave {len(results)} results instead of one")
        primary = results[0]["primaryMetric"]
        metrics = {name.removeprefix("pages."): metric["score"] for name, metric in results[0]["secondaryMetrics"].items()}
        known = lambda name, factor: metrics[name] * factor if isinstance(metrics.get(name), (int, float)) else None
        return {
            "seconds": min(min(fork) for fork in primary["rawData"]) * SECONDS[primary["scoreUnit"]],
            "coverage": known("heap.huge" if flags else "memory.huge", 0.01),
            "faults": known("faults", 1),
        }


def pool_of(arguments, flags):
    """Pool pages that a JVM with these flags needs."""
    return pages_of(arguments.hugewise, [arguments.java, *flags, "-version"])


def pages_of(hugewise, program):
    """Pool pages that a program needs, from `hugewise plan`."""
    command = [str(hugewise), "plan", "--json", "--", *program]
    ran = subprocess.run(command, capture_output=True, text=True)
    try:
        return sum(pool["pages_needed"] for pool in json.loads(ran.stdout)["pools"])
    except (json.JSONDecodeError, KeyError):
        raise CannotRun(f"{' '.join(command)}: {ran.stderr.strip()}") from None


@contextlib.contextmanager
def pool(pages):
    """Provides free pages of 2 MiB. A separate process restores the pool, even if this one is killed."""
    if not pages:
        yield
        return
    count = POOL / "nr_hugepages"
    if not os.access(count, os.W_OK):
        raise CannotRun(f"{pages} pages of 2MiB are needed, and only root may change the pool")
    STATE.mkdir(mode=0o700, exist_ok=True)
    with open(STATE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (STATE / "journal.json").exists():
            raise CannotRun("settings were applied by hugewise; undo them with 'hugewise restore'")
        before = count.read_text().strip()
        keeper = subprocess.Popen(["sh", "-c", f"trap '' INT TERM; cat >/dev/null; echo {before} >{count}"], stdin=subprocess.PIPE)
        try:
            free = int((POOL / "free_hugepages").read_text()) - int((POOL / "resv_hugepages").read_text())
            wanted = int(before) + max(0, pages - free)
            # A failed allocation may succeed after compaction.
            for attempt in range(5):
                count.write_text(str(wanted))
                if (got := int(count.read_text())) >= wanted:
                    break
                Path("/proc/sys/vm/compact_memory").write_text("1\n")
            if got < wanted:
                raise CannotRun(f"{pages} pages of 2MiB are needed, and the kernel found {got - int(before)} more: no contiguous memory")
            yield
        finally:
            keeper.stdin.close()
            keeper.wait()
