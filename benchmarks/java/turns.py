"""Benchmarks that take turns, each in its own process: load on a shared host affects all of them alike."""

import contextlib
import statistics
import subprocess
from pathlib import Path

WARM_UP_TURNS = 2


class CannotRun(Exception):
    """A process that takes turns has exited, or a cell cannot be measured."""


class Player:
    """A process with a prepared benchmark; `turn` is the line that starts one turn."""

    def __init__(self, command, turn, warm_up):
        self.command, self.line, self.warm_up = command, turn, warm_up

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            said = [line.strip() for line in self.process.stderr if line.strip()]
            errors = [line for line in said if "Exception" in line or "rror" in line] or said
            raise CannotRun(errors[-1] if errors else "a process exited without a message")
        return line

    def turn(self, line=None):
        """Runs for one turn; returns seconds per operation."""
        try:
            self.process.stdin.write(f"{line or self.line}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return 1e-9 * float(self.answer())

    def coverage(self):
        """Coverage of the resident memory of the process, 0 to 1."""
        kib = {}
        for line in Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().split("\n")[1:-1]:
            name, value = line.split(":")
            kib[name] = int(value.split()[0])
        pool = kib["Shared_Hugetlb"] + kib["Private_Hugetlb"]
        return (kib["AnonHugePages"] + kib["FilePmdMapped"] + kib["ShmemPmdMapped"] + pool) / (kib["Rss"] + pool)


def take(players, turns, order):
    """For each player the median of its turns in seconds, and the lower coverage of start and end.

    In each turn all run once, one after another, in random order."""
    with contextlib.ExitStack() as stack:
        for player in players:
            stack.enter_context(player)
        for player in players:
            player.answer()
        for player in players:
            for _ in range(WARM_UP_TURNS):
                player.turn(player.warm_up)
        took = [[] for _ in players]
        before = [player.coverage() for player in players]
        for _ in range(turns):
            for i in order.sample(range(len(players)), len(players)):
                took[i].append(players[i].turn())
        return [
            {"seconds": statistics.median(of), "coverage": min(player.coverage(), coverage)}
            for player, of, coverage in zip(players, took, before)
        ]


def take_cells(players, cells, turns, order, measured):
    """Calls `measured` with each cell and, for each player, the median of its turns in seconds; `None` for a player
    without this cell.

    `players` are (player, cells of it); their processes are used for one cell after another, in random order."""
    with contextlib.ExitStack() as stack:
        for player, _ in players:
            stack.enter_context(player)
        for player, _ in players:
            player.answer()
        for cell in order.sample(cells, len(cells)):
            took = [[] if cell in of else None for _, of in players]
            there = [i for i, seconds in enumerate(took) if seconds is not None]
            for i in there:
                for _ in range(WARM_UP_TURNS):
                    players[i][0].turn(f"{cell} {players[i][0].warm_up}")
            for _ in range(turns):
                for i in order.sample(there, len(there)):
                    took[i].append(players[i][0].turn(f"{cell} {players[i][0].line}"))
            measured(cell, [seconds and statistics.median(seconds) for seconds in took])
