"""Processes that a benchmark starts. They end with it, also after Ctrl-C and SIGTERM."""

import os
import random
import signal
import subprocess
import threading
import time
from contextlib import contextmanager, suppress

from results import stop

# Shortest, mean and longest phase of a neighbour, in seconds.
MIN_PHASE_S, MEAN_PHASE_S, MAX_PHASE_S = 2, 7, 20
# Time in which a neighbour must end after SIGTERM.
MAX_END_S = 5


@contextmanager
def process(command):
    """Runs a process that prints `ready` and then waits for the end of its input; yields its ID."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            if child.stdout.readline().strip() != "ready":
                stop(f"{command[0]} did not start")
            yield child.pid
        finally:
            # The end of its input also ends the process if the benchmark is killed.
            child.stdin.close()
            child.terminate()


def finished(command, heard=lambda line: None, **options):
    """Runs a program to its end, with its output as text. `heard` is called with each line of its standard error.

    If the benchmark is interrupted, the program gets one SIGINT and time to restore the machine.
    """
    child = subprocess.Popen(
        [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, **options)
    errors = []
    listener = threading.Thread(target=listen, args=(child.stderr, errors, heard))
    listener.start()
    try:
        output = child.stdout.read()
    except BaseException:
        child.send_signal(signal.SIGINT)
        child.stdout.read()
        raise
    finally:
        listener.join()
        child.wait()
        child.stdout.close()
        child.stderr.close()
    return subprocess.CompletedProcess(command, child.returncode, output, "".join(errors))


def listen(lines, kept, heard):
    for line in lines:
        kept.append(line)
        heard(line)


def phase_seconds(order):
    """Random length of a phase: exponential above the shortest."""
    return min(MAX_PHASE_S, MIN_PHASE_S + order.expovariate(1 / (MEAN_PHASE_S - MIN_PHASE_S)))


class Background:
    """Runs `work` in a thread until the end of a `with` block, when `over` is set."""

    def __init__(self):
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


class Neighbour(Background):
    """A program that runs in phases of random length."""

    def __init__(self, command, seed, length=phase_seconds):
        super().__init__()
        self.command, self.order, self.length = command, random.Random(f"neighbour {seed}"), length
        # Begin and end of each phase in which it ran, on the monotonic clock.
        self.phases = []
        # Why it cannot run; `None` if it can.
        self.failure = None

    def work(self):
        is_busy = self.order.random() < 0.5
        while not self.over.is_set():
            seconds = self.length(self.order)
            if is_busy:
                self.run(seconds)
            else:
                self.over.wait(seconds)
            is_busy = not is_busy

    def run(self, seconds):
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        try:
            child = subprocess.Popen(self.command, start_new_session=True, **quiet)
        except OSError as error:
            self.failure = f"{self.command[0]} cannot be started: {error}"
            self.over.set()
            return
        phase = [time.monotonic(), float("inf")]
        self.phases.append(phase)
        self.over.wait(seconds)
        if child.poll() is not None:
            self.failure = f"{' '.join(self.command)} exited with status {child.returncode} before the end of its phase"
            self.over.set()
        end_group(child)
        phase[1] = time.monotonic()

    def busy_ratio(self, begin, end):
        """Share of the time from `begin` to `end` in which it ran."""
        return sum(max(0, min(end, to) - max(begin, since)) for since, to in list(self.phases)) / (end - begin)


def end_group(child):
    """Ends a process that leads its process group, and all others in the group."""
    for signal_, seconds in ((signal.SIGTERM, MAX_END_S), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal_)
        with suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
            return
