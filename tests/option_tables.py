"""`python -m tests.option_tables`: writes the options into README.md and docs/ (`make docs`).

A table stands between `<!-- options COMMAND -->` and `<!-- end of options -->`.
"""

import re
import sys
from pathlib import Path

from bench.serving.config import bench_config
from services.explain_config import ExplainConfig
from services.launch import serve_config
from shared import options

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("README.md", "docs/options.md")
END = "<!-- end of options -->"


def tables() -> dict[str, str]:
    """The table of each command whose options are a dataclass."""
    return {
        "ninfer-serve": options.table(serve_config()),
        "ninfer-explain": options.table(ExplainConfig),
        "ninfer-bench": options.table(bench_config()),
    }


def refreshed(text: str) -> str:
    """The document with its tables as the code has them.

    Raises:
        KeyError: it has a table of an unknown command.
    """
    found = tables()
    return re.sub(
        rf"<!-- options (\S+) -->\n.*?{END}",
        lambda match: f"<!-- options {match[1]} -->\n\n{found[match[1]]}\n\n{END}",
        text,
        flags=re.DOTALL,
    )


def main() -> None:
    for name in DOCUMENTS:
        path = ROOT / name
        path.write_text(refreshed(path.read_text(encoding="utf-8")), encoding="utf-8")
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
