"""The log's file: set aside in whole lines, opened anew when moved, whole after a full disk."""

import os
from pathlib import Path

import pytest

from services.gateway.log_file import LogFile, aside

FIRST = b"first\n"


def texts(path: Path, count: int) -> list[str]:
    return [aside(path, n).read_text() for n in range(count) if aside(path, n).exists()]


def test_a_full_file_is_set_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = LogFile(path, most_bytes=12, keep=2)
    for number in range(8):
        file.write(b"line %d\n" % number, b"")
    file.close()
    assert texts(path, 9) == ["line 7\n", "line 6\n", "line 5\n"]
    assert len(list(tmp_path.iterdir())) == 3


def test_every_file_begins_with_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = LogFile(path, most_bytes=14, keep=1)
    file.write(b"a\n", FIRST)
    file.write(b"b\n", FIRST)
    file.write(b"0123456789\n", FIRST)
    file.close()
    assert texts(path, 2) == ["first\n0123456789\n", "first\na\nb\n"]


def test_a_line_longer_than_the_limit_has_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = LogFile(path, most_bytes=4, keep=3)
    for line in (b"0123456789\n", b"a\n", b"b\n"):
        file.write(line, b"")
    file.close()
    assert texts(path, 3) == ["a\nb\n", "0123456789\n"]


def test_nothing_is_kept_if_nothing_shall_be(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = LogFile(path, most_bytes=3, keep=0)
    for line in (b"a\n", b"b\n"):
        file.write(line, b"")
    file.close()
    assert path.read_text() == "b\n"
    assert len(list(tmp_path.iterdir())) == 1


def test_without_a_limit_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = LogFile(path, most_bytes=0, keep=1)
    for _ in range(100):
        file.write(b"0123456789\n", b"")
    file.close()
    assert path.stat().st_size == 1100


def test_a_file_that_somebody_emptied_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = LogFile(path, most_bytes=0, keep=0)
    file.write(b"a\n", FIRST)
    os.truncate(path, 0)
    file.write(b"b\n", FIRST)
    file.close()
    assert path.read_text() == "first\nb\n"


@pytest.mark.parametrize("how", ["moved", "deleted"])
def test_a_file_that_somebody_took_away_is_opened_anew(tmp_path: Path, how: str) -> None:
    path = tmp_path / "log"
    file = LogFile(path, most_bytes=0, keep=0)
    file.write(b"a\n", FIRST)
    if how == "moved":
        path.rename(tmp_path / "elsewhere")
    else:
        path.unlink()
    file.write(b"b\n", FIRST)
    file.close()
    assert path.read_text() == "first\nb\n"


def test_what_was_there_before_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old\n")
    file = LogFile(path, most_bytes=100, keep=0)
    file.write(b"a\n", FIRST)
    file.close()
    assert path.read_text() == "old\na\n"


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    LogFile(path, most_bytes=0, keep=0).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_that_did_not_fit_does_not_spoil_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    file = LogFile(path, most_bytes=0, keep=0)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    with pytest.raises(OSError, match="No space left"):
        file.write(b"half a line\n", b"")
    monkeypatch.setattr(os, "write", write)
    file.write(b"whole\n", b"")
    file.close()
    assert path.read_text() == "whole\n"


def test_a_device_is_never_set_aside() -> None:
    file = LogFile(Path("/dev/null"), most_bytes=1, keep=1)
    for _ in range(3):
        file.write(b"line\n", b"")
    file.close()
    assert not Path("/dev/null.1").exists()
