from pathlib import Path

import pytest

from services.archive.config import ArchiveConfig, resolve
from shared.errors import ConfigError

MIB = 1 << 20


@pytest.mark.parametrize(
    ("total", "session", "expected"),
    [(0, None, None), (512, None, 128), (64, None, 64), (64, 64, 64), (64, 1, 1)],
)
def test_the_limits_in_force(total: int, session: int | None, expected: int | None) -> None:
    limits = resolve(ArchiveConfig(Path("/tmp"), total, session))
    assert (limits and (limits.total_bytes, limits.session_bytes)) == (
        expected and (total * MIB, expected * MIB)
    )


@pytest.mark.parametrize(
    ("total", "session", "words"),
    [
        (-1, None, "use 0 or more"),
        (0, 5, "needs --ngram-archive-mib"),
        (64, 65, "use 1 to 64"),
        (64, 0, "use 1 to 64"),
        (99_999_999, None, "99999999 is more than this machine's memory of [0-9]+ MiB"),
    ],
)
def test_a_bad_combination_is_one_sentence(total: int, session: int | None, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        resolve(ArchiveConfig(Path("/tmp"), total, session))
