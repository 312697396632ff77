"""A Redis server with a load, and the requests that measure it."""

import random
import re
import socket
import subprocess
import time

from processes import Background
from results import stop

VALUE_BYTES = 240
START_S = 10
# Requests of the probe per second.
PROBES = 500


def key(n):
    return f"key:{n:012d}"


def value(n):
    return (f"{n:012d}" * (VALUE_BYTES // 12)).encode()


def request(*words):
    return b"".join([f"*{len(words)}\r\n".encode(), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)])


class Redis:
    """A Redis server on base pages with `keys` keys, and redis-benchmark, which reads them at random."""

    def __init__(self, keys):
        self.keys = keys
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    def __enter__(self):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.server = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", "/tmp"], **quiet)
        self.pid = self.server.pid
        try:
            self.fill()
            line = ["redis-benchmark", "-p", str(self.port), "-t", "get", "-r", str(self.keys), "-c", "8", "-P", "16", "-l", "-q"]
            self.load = subprocess.Popen(line, **quiet)
        except BaseException:
            self.server.kill()
            raise
        return self

    def __exit__(self, *_):
        for child in (self.load, self.server):
            child.terminate()
            child.wait()

    def connect(self):
        end = time.monotonic() + START_S
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), timeout=START_S)
            except OSError as error:
                if time.monotonic() > end:
                    stop(f"redis-server cannot be reached: {error}")
                time.sleep(0.05)

    def fill(self):
        with self.connect() as connection, connection.makefile("rb") as answers:
            for begin in range(0, self.keys, 1000):
                some = range(begin, min(begin + 1000, self.keys))
                connection.sendall(b"".join(request(b"SET", key(n).encode(), value(n)) for n in some))
                for _ in some:
                    if answers.readline() != b"+OK\r\n":
                        stop("redis-server did not store a key")

    def statistics(self):
        """The numbers of INFO stats."""
        text = subprocess.run(["redis-cli", "-p", str(self.port), "info", "stats"], stdout=subprocess.PIPE, text=True).stdout
        return {name: int(number) for name, number in re.findall(r"^(\w+):(\d+)\r?$", text, re.M)}


class Probe(Background):
    """Reads a random key at fixed intervals, and checks the answer. The duration begins when the request is due."""

    def __init__(self, redis, seed):
        super().__init__()
        self.redis, self.order = redis, random.Random(f"probe {seed}")
        # When a request was due, its duration, and whether its answer was right.
        self.requests = []

    def work(self):
        with self.redis.connect() as connection, connection.makefile("rb") as answers:
            due = time.monotonic()
            while not self.over.is_set():
                time.sleep(max(0, due - time.monotonic()))
                n = self.order.randrange(self.redis.keys)
                try:
                    connection.sendall(request(b"GET", key(n).encode()))
                    answer = answers.readline() == b"$%d\r\n" % VALUE_BYTES and answers.read(VALUE_BYTES + 2)
                except OSError:
                    answer = None
                self.requests.append((due, time.monotonic() - due, answer == value(n) + b"\r\n"))
                if not answer:
                    return
                due += 1 / PROBES

    def of(self, spans):
        """Durations of the requests that were under way in one of these spans of time."""
        return [seconds for due, seconds, _ in self.requests if any(due < end and due + seconds > begin for begin, end in spans)]

    def wrong(self):
        """Number of requests without the right answer."""
        return sum(not is_right for *_, is_right in self.requests)
