"""The servers of the workload: PostgreSQL and the service, each on its backing, and the clients that drive them."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from cache_processes import cpu_seconds
from jmh import pages_of
from results import stop
from turns import CannotRun, Player

READY_SECONDS = 60
BASE_PAGE = os.sysconf("SC_PAGE_SIZE")
# The data is deleted after each round, so nothing waits for the disk; the work of the background is left out.
SETTINGS = {
    "shared_buffers": "768MB", "max_connections": "60", "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off",
    "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off", "checkpoint_timeout": "1h", "max_wal_size": "16GB", "jit": "off",
    "max_parallel_workers_per_gather": "0",
}
# Reads its standard input until the benchmark ends, also by SIGKILL; then ends the server and deletes its data.
KEEPER = 'trap "" INT TERM HUP; data=$1; shift; "$@" & cat >/dev/null; kill -QUIT $!; wait; rm -rf "$data"'
BACKINGS_OF_JVM = {"base": [], "thp": ["-XX:+UseTransparentHugePages"], "hugetlb": ["-XX:+UseLargePages"]}


def programs():
    """The folder of the newest PostgreSQL."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    if not found:
        stop("PostgreSQL is not in /usr/lib/postgresql: run 'scripts/tools postgres'")
    return found[-1].parent


def owner():
    """Options of a process of PostgreSQL, which refuses root."""
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}


def ran(*command, **options):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        raise CannotRun(f"{Path(command[0]).name}: {' '.join(done.stdout.split()[-40:])}")
    return done.stdout


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@contextmanager
def scratch():
    """A folder of the owner, which is deleted at the end, also after SIGKILL."""
    folder = tempfile.mkdtemp(prefix="hugewise-oltp-", dir="/var/tmp")
    if user := owner():
        shutil.chown(folder, user["user"], user["group"])
    # Servers that are about to end may still write.
    delete = 'trap "" INT TERM HUP; cat >/dev/null; until rm -rf "$1"; do sleep 1; done'
    keeper = subprocess.Popen(["sh", "-c", delete, "keeper", folder], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield Path(folder)
    finally:
        keeper.stdin.close()
        keeper.wait()


class Postgres:
    """A server on a copy of a data folder, or on a new one, which is deleted at the end."""

    def __init__(self, folder, backing, template=None):
        self.folder, self.backing, self.template = folder, backing, template
        self.data = folder / f"database-{backing}" if template else folder / "template"

    def command(self, data, port=0):
        settings = SETTINGS | {"huge_pages": "on" if self.backing == "hugetlb" else "off"} | ({"port": port} if port else {})
        return [str(programs() / "postgres"), "-D", str(data), *(word for name, value in settings.items() for word in ("-c", f"{name}={value}"))]

    def pages(self, hugewise):
        return pages_of(hugewise, self.command(self.template)) if self.backing == "hugetlb" else 0

    def __enter__(self):
        if self.template:
            ran("cp", "-a", "--reflink=auto", self.template, self.data, **owner())
        else:
            ran(programs() / "initdb", "--no-sync", "--auth=trust", "--username=shop", "-D", self.data, **owner())
        self.port = free_port()
        self.log = self.folder / f"{self.data.name}.log"
        # The template stays when its server ends.
        deleted = self.data if self.template else self.folder / "nothing"
        with open(self.log, "w") as log:
            self.keeper = subprocess.Popen(["sh", "-c", KEEPER, "keeper", deleted, *self.command(self.data, self.port)], stdin=subprocess.PIPE,
                                           stdout=log, stderr=log, start_new_session=True, **owner())
        try:
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait(self):
        deadline = time.monotonic() + READY_SECONDS
        while (state := self.state())[-1:] != ["ready"]:
            if time.monotonic() > deadline or "FATAL" in self.log.read_text():
                raise CannotRun(f"PostgreSQL on {self.backing} does not start: {self.log.read_text().strip()}")
            time.sleep(0.1)
        self.pid = int(state[0])

    def state(self):
        """Lines of postmaster.pid, the last of which says whether the server accepts connections."""
        file = self.data / "postmaster.pid"
        return file.read_text().split() if file.exists() else []

    def __exit__(self, *_):
        self.keeper.stdin.close()
        self.keeper.wait()

    def stop(self):
        """Ends the server in order, so that a copy of its data needs no recovery."""
        ran(programs() / "pg_ctl", "stop", "-w", "-m", "fast", "-D", self.data, **owner())

    def psql(self, *words):
        return ran(programs() / "psql", "-X", "-q", "-h", "127.0.0.1", "-p", self.port, "-U", "shop", "-d", "postgres", *words)

    def warm(self):
        """Reads all tables and indices into the shared buffers."""
        self.psql("-c", "select sum(pg_prewarm(oid)) from pg_class where relkind in ('r', 'i') and relnamespace = 'public'::regnamespace")

    def url(self):
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user=shop&reWriteBatchedInserts=true"

    def processes(self):
        return [self.pid, *(int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())]

    def cpu(self):
        return sum(cpu_seconds(pid) for pid in self.processes())

    def coverage(self, hugewise):
        """Share on huge pages of the shared memory, in that process of the server which has most of it resident."""
        return max((coverage(hugewise, pid, "PostgreSQL shared memory") for pid in self.processes()))[1]


class Service(Player):
    """The JVM of the service on its backing."""

    def __init__(self, java, class_path, backing, gib, threads, warehouses):
        heap = f"{round(gib * 1024)}m"
        self.flags = [f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", "-XX:+AlwaysPreTouch", *BACKINGS_OF_JVM[backing]]
        self.java, self.backing = java, backing
        # Connections wait for the turns of the others.
        self.words = ["-Dsun.net.httpserver.nodelay=true", "-Dsun.net.httpserver.idleInterval=36000", "-cp", class_path,
                      "io.hugewise.benchmarks.oltp.Service", str(warehouses), str(threads)]

    def pages(self, hugewise):
        return pages_of(hugewise, [self.java, *self.flags, "-version"]) if self.backing == "hugetlb" else 0

    def on(self, databases):
        self.command = [self.java, *self.flags, *self.words, *(database.url() for database in databases)]
        return self

    def wait(self):
        self.port = int(self.answer())

    def cpu(self):
        return cpu_seconds(self.process.pid)

    def coverage(self, hugewise):
        return coverage(hugewise, self.process.pid, "heap")[1]


def coverage(hugewise, pid, name):
    """(resident bytes, share of them on huge pages) of a region, as the kernel reports it."""
    done = subprocess.run([hugewise, "inspect", "--json", str(pid)], stdout=subprocess.PIPE, text=True)
    try:
        regions = [region for region in json.loads(done.stdout)["regions"] if region["name"] == name]
    except (json.JSONDecodeError, KeyError, TypeError):
        raise CannotRun(f"{hugewise} inspect {pid}: {done.stdout}") from None
    resident = sum(region["resident_bytes"] for region in regions)
    huge = sum(size for region in regions for page, size in region["bytes_by_page_size"].items() if int(page) > BASE_PAGE)
    return resident, huge / resident if resident else 0


class Clients(Player):
    """Closed-loop clients on one CPU, whose CPU time is not counted."""

    def __init__(self, java, class_path, count):
        super().__init__(["taskset", "-c", str(max(os.sched_getaffinity(0))), java, "-Xmx256m", "-cp", class_path,
                          "io.hugewise.benchmarks.oltp.Clients", str(count)], "", "")

    def drive(self, service, database, count, seed):
        """Drives a service for so many transactions: seconds, and the number of answers by bucket of latency."""
        self.process.stdin.write(f"{service.port} {database} {count} {seed}\n")
        self.process.stdin.flush()
        nanos, failed, *buckets = self.answer().split()
        if int(failed):
            raise CannotRun(f"{failed} requests of the JVM on {service.backing} failed")
        return 1e-9 * int(nanos), Counter({int(bucket): int(count) for bucket, count in (pair.split(":") for pair in buckets)})


def quantile(latencies, ratio):
    """Latency in seconds that this share of the answers does not exceed; the middle of a bucket of 2.2 %."""
    rank = ratio * latencies.total()
    for bucket in sorted(latencies):
        rank -= latencies[bucket]
        if rank <= 0:
            break
    return 1e-9 * 2 ** ((bucket + 0.5) / 32)
