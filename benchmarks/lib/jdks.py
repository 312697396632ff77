"""JDKs of this machine, as `hugewise check` finds them."""

import json
import shutil
import subprocess
from pathlib import Path

from results import stop


def by_version(hugewise):
    """The `java` of each JDK, by its major version."""
    try:
        ran = subprocess.run([hugewise, "check", "--json"], stdout=subprocess.PIPE, text=True)
        return {jdk["major"]: jdk["java"] for jdk in sorted(json.loads(ran.stdout)["jdks"], key=lambda jdk: (jdk["major"], jdk["java"]))}
    except (OSError, json.JSONDecodeError, KeyError, ValueError) as error:
        return stop(f"{hugewise} check --json: {error}")


def newest(hugewise, least):
    """The `java` of the newest JDK, which must have at least this version."""
    found = by_version(hugewise)
    if max(found, default=0) < least:
        stop(f"no JDK of {least} or later is found")
    return found[max(found)]


def add_option(parser, least):
    """The option --java."""
    parser.add_argument("--java", help=f"a JVM of {least} or later [default: the newest found]")


def compiler(java):
    """The `javac` of the JDK that a `java` belongs to."""
    return Path(shutil.which(java) or java).resolve().parent / "javac"
