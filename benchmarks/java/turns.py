"""Benchmarks that take turns, each in its own JVM: load on a shared host affects all of them alike."""

import contextlib
import statistics
import subprocess
from pathlib import Path

WARM_UP_MS = 300


class CannotRun(Exception):
    """A JVM that takes turns has exited."""


class Player:
    """A JVM with a prepared benchmark."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            said = [line.strip() for line in self.process.stderr if "Exception" in line or "rror" in line]
            raise CannotRun(said[-1] if said else "a JVM exited without a message")
        return line

    def turn(self, ms):
        """Runs for `ms`; returns ns per operation."""
        self.process.stdin.write(f"{ms}\n")
        self.process.stdin.flush()
        return float(self.answer())

    def huge(self):
        """Coverage of the JVM's resident memory, in percent."""
        kib = {}
        for line in Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().split("\n")[1:-1]:
            name, value = line.split(":")
            kib[name] = int(value.split()[0])
        pool = kib["Shared_Hugetlb"] + kib["Private_Hugetlb"]
        return 100 * (kib["AnonHugePages"] + kib["FilePmdMapped"] + kib["ShmemPmdMapped"] + pool) / (kib["Rss"] + pool)


def take(commands, turns, ms, order):
    """For each command the median of its turns, and the lower coverage of start and end.

    In each turn all run once, one after another, in random order."""
    with contextlib.ExitStack() as stack:
        players = [stack.enter_context(Player(command)) for command in commands]
        for player in players:
            player.answer()
        for player in players:
            player.turn(WARM_UP_MS)
            player.turn(WARM_UP_MS)
        took = [[] for _ in players]
        before = [player.huge() for player in players]
        for _ in range(turns):
            for i in order.sample(range(len(players)), len(players)):
                took[i].append(players[i].turn(ms))
        return [
            {"best": statistics.median(of), "memory.huge": min(player.huge(), huge)}
            for player, of, huge in zip(players, took, before)
        ]
