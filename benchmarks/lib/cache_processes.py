"""JVMs with a cache that take turns: their CPU time, and the pages on which their entries lie."""

import json
import re
import subprocess
import sys
import time

from results import ROOT, stop

sys.path.insert(0, str(ROOT / "benchmarks/java"))
from turns import WARM_UP_TURNS, CannotRun, Player

PEERS = ROOT / "benchmarks/cache/peers"
PAGE = 2 << 20
# What entries lie in.
HEAP, MALLOC, OWN = "heap", "malloc", "own memory"
# Memory of a JVM itself among its anonymous regions.
OF_JVM = ("metaspace", "class space", "CDS", "stack", "[")


def built():
    """Compiles the programs, and returns their class path."""
    ran = subprocess.run(["mvn", "-q", "-B", "-f", PEERS / "pom.xml", "package"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ran.returncode:
        stop(f"{PEERS} could not be built ('make java' installs the library):\n{ran.stdout}")
    return str(PEERS / "target/lib/*")


def versions(*artifacts):
    """The versions of compared libraries, by name."""
    pom = (PEERS / "pom.xml").read_text()
    return {name: re.search(rf"<artifactId>{name}</artifactId>\s*<version>([^<]*)", pom)[1] for name in artifacts}


def cpu_seconds(pid):
    """CPU time of a process with all its threads, also of those that have ended."""
    # As clock_getcpuclockid(3) makes it: the clock of the scheduler, of a process.
    return time.clock_gettime(~pid << 3 | 2)


class CachePlayer(Player):
    """A JVM whose answers are nanoseconds per operation, operations, and others."""

    def __init__(self, command, turn, warm_up, environment=None):
        super().__init__(command, turn, warm_up)
        self.environment = environment or {}
        # By the first word of the line: (CPU seconds, operations, others) of each turn.
        self.taken = {}

    def __enter__(self):
        # The environment of a JVM cannot be passed to Player.
        self.command = ["env", *(f"{name}={value}" for name, value in self.environment.items()), *self.command]
        return super().__enter__()

    def answer(self):
        nanos, *self.others = super().answer().split()
        return nanos

    def turn(self, line=None):
        before = cpu_seconds(self.process.pid)
        seconds = super().turn(line)
        took = cpu_seconds(self.process.pid) - before
        self.taken.setdefault((line or self.line).split()[0], []).append((took, *(int(word) for word in self.others)))
        return seconds

    def judged(self, cell):
        """The turns of a cell without those that warmed up, as sums."""
        return [sum(column) for column in zip(*self.taken[cell][WARM_UP_TURNS:])]

    def missing(self, arm, entries):
        """Lets the cache read all keys and compare every byte; the number of keys that are missing."""
        self.process.stdin.write("verify\n")
        self.process.stdin.flush()
        right, (missing, wrong) = int(self.answer()), (int(word) for word in self.others[:2])
        if wrong or right + missing != entries:
            raise CannotRun(f"{arm}: {wrong} of {entries} values were not what was written")
        return missing

    def entries_coverage(self, hugewise, memory):
        """Share on huge pages of the memory in which entries can lie: `HEAP`, `MALLOC` (also what it maps), or `OWN`.

        With the reasons of the rest, as `inspect` has them."""
        ran = subprocess.run([hugewise, "inspect", "--json", str(self.process.pid)], stdout=subprocess.PIPE, text=True)
        try:
            regions = json.loads(ran.stdout)["regions"]
        except (json.JSONDecodeError, KeyError, TypeError):
            raise CannotRun(f"{hugewise} inspect {self.process.pid}: {ran.stdout}") from None
        of = [region for region in regions if is_of_entries(region, memory)]
        resident = sum(region["resident_bytes"] for region in of)
        if not resident:
            raise CannotRun(f"{hugewise} inspect {self.process.pid}: no memory of entries: {ran.stdout}")
        huge = sum(size for region in of for page, size in region["bytes_by_page_size"].items() if int(page) >= PAGE)
        return huge / resident, sorted({region["reason"] for region in of if region["reason"]})


def is_of_entries(region, memory):
    if memory == HEAP:
        return region["name"] == "heap"
    others = ("jvm_large_pages", "file", "stack") + (("malloc",) if memory == OWN else ())
    return region["kind"] not in others and not region["name"].startswith(OF_JVM)
