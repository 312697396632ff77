"""Where a result comes from: the commit, the binary, the host and the compared programs."""

import os
import platform
import re
import subprocess
from pathlib import Path


# What a JVM says first if a variable has options for it.
ANNOUNCED = "Picked up "
# Variables that change what the programs of a benchmark do.
VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "GLIBC_TUNABLES")


def assignments():
    """The variables that the benchmark was started with, as words in front of its command."""
    return [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]


def first_line(*command):
    """First line of a program's output, or `None` if it cannot run."""
    try:
        ran = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines = (line for line in ran.stdout.split("\n") if not line.startswith(ANNOUNCED))
        return next(lines, "").strip() or None
    except OSError:
        return None


def version(*command):
    """First line of a program's output, without its name."""
    line = first_line(*command)
    return line and re.sub(r"^\S+ (version )?", "", line).replace('"', "")


def tree(root):
    """(commit, whether the tree is clean); `None` if git does not know. Results do not make a tree unclean."""

    def git(*words):
        try:
            ran = subprocess.run(["git", "-C", root, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            return None
        return ran.stdout.strip() if ran.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=all", "--", ":/", ":(top,exclude)benchmarks/*/results/*")
    return commit, None if changed is None else not changed


def objection(root, binary):
    """Why a result on this tree with this binary is not reproducible; `None` if it is."""
    commit, clean = tree(root)
    if commit is None:
        return "the commit is unknown"
    if not clean:
        return "the tree has uncommitted changes"
    # Cargo lists the sources of a binary beside it.
    listed = binary.with_suffix(".d")
    if not listed.is_file():
        return f"{listed} is missing, so the commit of {binary} is unknown"
    sources = [Path(name.replace("\\ ", " ")) for name in re.split(r"(?<!\\)\s+", listed.read_text().split(": ", 1)[1].strip())]
    if not all(source.is_relative_to(root) for source in sources):
        return f"{binary} was not built from {root}"
    newest = max((source.stat().st_mtime for source in sources if source.exists()), default=0)
    if newest > binary.stat().st_mtime:
        return f"{binary} is older than its sources: run 'make build'"
    return None


def meminfo_bytes(name):
    """A field of /proc/meminfo, such as `MemFree`, in bytes."""
    field = re.search(rf"^{name}:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    return int(field[1]) * 1024


def host():
    """The machine, as the kernel reports it."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", cpuinfo, re.M)
    flags = re.search(r"^flags\s*: (.*)$", cpuinfo, re.M)
    of = {
        "cpu": model[1].strip() if model else None,
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "memory_bytes": meminfo_bytes("MemTotal"),
        "virtual": "hypervisor" in flags[1].split() if flags else None,
    }
    return with_reasons(of, {name: "/proc/cpuinfo does not report it" for name in ("cpu", "virtual")})


def thp_mode():
    """The selected mode of transparent huge pages; `None` without them."""
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return None
    return re.search(r"\[(\w+)\]", text)[1]


def with_reasons(of, reasons):
    """Adds `unknown` with the reasons of those fields that are `None`."""
    unknown = {name: reason for name, reason in reasons.items() if of.get(name) is None}
    return {**of, "unknown": unknown} if unknown else of
