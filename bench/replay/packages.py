"""Real edits: the Python files that changed between two released versions of public packages.

Wheels are fetched by pip into the user's cache when a benchmark runs; nothing of them is committed.
"""

import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from rich.progress import track

CACHE = Path.home() / ".cache" / "ninfer" / "bench" / "packages"
# Two disjoint sets: priors are learned on one and every reported figure comes from the other.
LEARN_PAIRS = (
    "requests:2.28.2:2.32.3",
    "click:8.0.4:8.1.7",
    "httpx:0.23.3:0.27.2",
    "jinja2:3.0.3:3.1.4",
    "werkzeug:2.2.3:3.0.4",
    "typer:0.7.0:0.12.5",
    "marshmallow:3.19.0:3.22.0",
    "pluggy:1.0.0:1.5.0",
)
MEASURE_PAIRS = (
    "flask:2.2.5:3.0.3",
    "rich:13.0.1:13.9.4",
    "attrs:22.1.0:24.2.0",
    "starlette:0.25.0:0.38.6",
    "packaging:21.3:24.1",
    "urllib3:1.26.18:2.2.3",
    "tenacity:8.1.0:9.0.0",
    "textual:0.40.0:0.52.1",
)
FEWEST_LINES, MOST_LINES = 60, 420
LEAST_SIMILAR = 0.55  # below this the new file is no edit of the old one


@dataclass(frozen=True)
class FileEdit:
    """One file before and after a release, both with LF line ends."""

    package: str
    path: str
    old: str
    new: str


@dataclass(frozen=True)
class PackagePair:
    name: str
    old: str
    new: str

    @classmethod
    def parse(cls, text: str) -> "PackagePair":
        """From `name:old:new`.

        Raises:
            ValueError: the text has another form.
        """
        parts = text.split(":")
        if len(parts) != 3 or not all(parts):
            raise ValueError(f"'{text}' is no package pair; write NAME:OLD_VERSION:NEW_VERSION")
        return cls(*parts)


def fetch(pairs: Sequence[PackagePair]) -> list[FileEdit]:
    """Every usable edit of every pair, in a fixed order.

    Raises:
        RuntimeError: pip could not fetch a wheel.
    """
    edits = []
    for pair in track(pairs, "fetching packages", transient=True):
        old, new = _sources(pair.name, pair.old), _sources(pair.name, pair.new)
        for path in sorted(old.keys() & new.keys()):
            edit = FileEdit(pair.name, path, old[path], new[path])
            if _usable(edit):
                edits.append(edit)
    return edits


def descriptions(pairs: Sequence[PackagePair]) -> list[str]:
    """The prose of the packages' own long descriptions."""
    texts = []
    for pair in pairs:
        with zipfile.ZipFile(_wheel(pair.name, pair.new)) as wheel:
            for name in wheel.namelist():
                if name.endswith(".dist-info/METADATA"):
                    texts.append(_text(wheel.read(name)).partition("\n\n")[2])
    return [text for text in texts if text.count("\n") >= 20]


def _usable(edit: FileEdit) -> bool:
    """Only the cheap tests first: the similarity of two files takes milliseconds."""
    lines = edit.old.count("\n")
    if edit.old == edit.new or not FEWEST_LINES <= lines <= MOST_LINES:
        return False
    matcher = SequenceMatcher(None, edit.old.splitlines(), edit.new.splitlines(), autojunk=False)
    return matcher.quick_ratio() >= LEAST_SIMILAR and matcher.ratio() >= LEAST_SIMILAR


def _sources(name: str, version: str) -> dict[str, str]:
    with zipfile.ZipFile(_wheel(name, version)) as wheel:
        return dict(_files(wheel))


def _files(wheel: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    for name in wheel.namelist():
        if name.endswith(".py"):
            yield name, _text(wheel.read(name))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\r\n", "\n")


def _wheel(name: str, version: str) -> Path:
    folder = CACHE / f"{name}-{version}"
    found = list(folder.glob("*.whl"))
    if not found:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", str(folder), f"{name}=={version}"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if result.returncode:
            reason = result.stderr.strip().splitlines()[-1:] or ["pip said nothing"]
            raise RuntimeError(f"cannot fetch {name} {version}: {reason[0]}")
        found = list(folder.glob("*.whl"))
    return found[0]
