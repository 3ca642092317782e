"""Who reads the wall clock, which may jump: only what tells a person or a log when it was."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
WALL_CLOCK = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow")}
# file -> what it says with it
MAY = {
    "services/archive/archive.py": "when a session was last used",
    "services/gateway/draft_records.py": "when a record was made",
    "services/gateway/models.py": "when the model was loaded",
    "services/gateway/page/live.py": "when a page's news was written",
    "services/gateway/page/recent.py": "when a request came",
    "services/gateway/protocols/chat_reply.py": "`created`",
    "services/gateway/protocols/completions.py": "`created`",
    "services/gateway/protocols/responses_reply.py": "`created_at`",
    "services/gateway/request_log.py": "the lines' timestamps",
    "services/gateway/traces.py": "the spans' timestamps",
    "services/log/cli.py": "--since",
    "shared/template.py": "the date that a chat template may ask for",
}


def readers() -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for folder in ("services", "shared")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in WALL_CLOCK
    }


def test_deadlines_are_kept_by_the_monotonic_clock() -> None:
    assert readers() - set(MAY) == set()
