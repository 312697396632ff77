"""Parts of the documentation that are written from results: the text between `<!-- data: NAME -->` and
`<!-- /data -->`, each on a line of its own."""

import re
from pathlib import Path

MARKED = re.compile(r"^(<!-- data: (\S+) -->\n)(.*?)^(<!-- /data -->)$", re.S | re.M)


def rendered(text, figures):
    """The page with the current figures, and the names of the markers whose text differs.

    `figures` returns the text of a marker; its KeyError names an unknown one."""
    differing = []

    def replace(found):
        begin, name, old, end = found.groups()
        new = figures(name).strip("\n") + "\n"
        if new != old:
            differing.append(name)
        return begin + new + end

    return MARKED.sub(replace, text), differing


def unpaired(text):
    """Number of markers without their counterpart."""
    return len(re.findall("^<!-- (?:/data|data: [^>]*) -->", MARKED.sub("", text), re.M))


def all_of(root):
    """Every page that may have markers."""
    folders = [root, root / "docs", *sorted(Path(root, "benchmarks").glob("*"))]
    return [page for folder in folders for page in sorted(folder.glob("*.md"))]
