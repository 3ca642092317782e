"""`ninfer-log`: what it reads, chooses, sums up and explains."""

import json
import os
import threading
from pathlib import Path

import msgspec
import pytest

from services.gateway.log_lines import AnyLine, RequestDone, Speculation, schema
from services.log.cli import main
from services.log.reading import LogReader
from services.log.totals import by_group, by_source
from services.log.wanted import since
from services.log.why import reasons, stages
from shared.errors import ConfigError
from shared.messages import SourceStats
from tests.log.making import Log

OFF = Speculation(ngram_draft_tokens=0, draft_tokens=0)
COPIES = SourceStats(kind="derived", rounds=1, drafted_tokens=15, accepted_tokens=8)
DOCUMENTED = Path(__file__).parents[2] / "docs" / "request-log.schema.json"


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log.jsonl")


def printed(capsys: pytest.CaptureFixture[str], *argv: object) -> list[str]:
    capsys.readouterr()  # what the log printed on the terminal
    assert main([str(argument) for argument in argv]) == 0
    return capsys.readouterr().out.splitlines()


def only(log: Log) -> RequestDone:
    lines = [line for line, _ in LogReader(log.path).lines() if isinstance(line, RequestDone)]
    return lines[-1]


def changed(line: RequestDone, group: str, **fields: object) -> RequestDone:
    inner = msgspec.structs.replace(getattr(line, group), **fields)
    return msgspec.structs.replace(line, **{group: inner})


def test_the_documented_schema_is_that_of_the_types() -> None:
    assert json.loads(DOCUMENTED.read_text()) == schema(), (
        "run ninfer-log schema > docs/request-log.schema.json"
    )


def test_a_request_is_one_line_and_its_start_is_none(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.start()
    log.log.request_start(log.request("chatcmpl-12345678", "codex/1", None))
    log.done("chatcmpl-12345678", sources=(COPIES,))
    log.error("chatcmpl-87654321")
    server, done, error = printed(capsys, "tail", log.path)
    assert "tiny on cpu in bfloat16, copies 15, spec off" in server
    assert " 12345678 codex " in done
    assert "5.0 tokens/pass kept 8/15 (derived 8)" in done
    assert "87654321 codex          400 BadParameter in prepare, n: too many" in error


def test_tail_shows_the_last_that_were_asked_for(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(30):
        log.done(f"r-{number}", client="codex" if number % 2 else "claude")
    lines = printed(capsys, "tail", log.path, "-n", 3, "--client", "CLAUDE", "--json")
    assert [json.loads(line)["request"]["request_id"] for line in lines] == ["r-24", "r-26", "r-28"]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--request", "slow"], ["a-slow"]),
        (["--session", "ab"], ["b-session"]),
        (["--errors"], ["c-error"]),
        (["--slower", "5"], ["a-slow"]),
        (["--protocol", "chat"], ["a-slow", "b-session", "c-error"]),
        (["--since", "1h"], ["a-slow", "b-session", "c-error"]),
        (["--since", "2999-01-01"], []),
        (["--client", "claude"], []),
    ],
)
def test_filters(
    log: Log, capsys: pytest.CaptureFixture[str], filters: list[str], found: list[str]
) -> None:
    log.start()
    log.done("a-slow", total_s=9.0)
    log.done("b-session", session="abcdef")
    log.error("c-error")
    lines = [json.loads(line) for line in printed(capsys, "tail", log.path, "--json", *filters)]
    named = [line["request"]["request_id"] for line in lines if "request" in line]
    assert named == found


def test_files_set_aside_are_read_first(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl", max_mib=1, keep=9)
    log.start()
    for number in range(1200):
        log.done(f"r-{number}")
    assert (tmp_path / "log.jsonl.1").exists()
    lines = [line for line, _ in LogReader(log.path).lines() if isinstance(line, RequestDone)]
    assert [line.request.request_id for line in lines] == [f"r-{n}" for n in range(1200)]
    for path in tmp_path.iterdir():
        assert json.loads(path.read_text().split("\n", 1)[0])["event"] == "server_start"


def test_lines_are_followed_across_a_file_that_is_set_aside(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl", max_mib=1, keep=9)
    log.done("first")
    reader = LogReader(log.path)
    assert len(list(reader.lines())) == 1
    log.done("between")
    written = threading.Event()
    found: list[str] = []

    def follow() -> None:
        for line, _ in reader.follow(until=written.is_set):
            assert isinstance(line, RequestDone)
            found.append(line.request.request_id)

    thread = threading.Thread(target=follow)
    thread.start()
    for number in range(700):
        log.done(f"r-{number}")
    written.set()
    thread.join(30)
    assert not thread.is_alive()
    assert found == ["between", *(f"r-{n}" for n in range(700))]


def test_what_is_no_line_is_skipped_and_counted(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.done("r")
    with log.path.open("ab") as file:
        file.write(b'{"event": "request_do\n\xff\xfe\n{}\n\n')
    log.done("s")
    capsys.readouterr()
    assert main(["tail", str(log.path)]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert "3 lines" in err


def test_a_line_that_is_still_being_written_is_left_alone(log: Log) -> None:
    log.done("r")
    with log.path.open("ab") as file:
        file.write(b'{"artifact_type"')
    reader = LogReader(log.path)
    assert len(list(reader.lines())) == 1
    assert reader.skipped == 0


def test_a_newer_schema_is_refused(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    log.done("r")
    text = log.path.read_text().replace('"schema_version": 1', '"schema_version": 2')
    log.path.write_text(text)
    assert main(["summary", str(log.path)]) == 1
    assert "schema version 2" in capsys.readouterr().err


def test_fields_that_are_not_known_yet_are_ignored(log: Log) -> None:
    log.done("r")
    log.path.write_text(log.path.read_text().replace('"result": {', '"result": {"new": 1, '))
    assert only(log).result.completion_tokens == 11


def test_a_start_without_an_end_is_told_once_another_gateway_has_begun(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.start()
    log.log.request_start(log.request("r-12345678", "codex/1", None))
    assert len(printed(capsys, "tail", log.path)) == 1
    Log(log.path).start()
    _, lost, _ = printed(capsys, "tail", log.path)
    assert "12345678 codex          0 gateway_died in generate" in lost
    assert len(printed(capsys, "tail", log.path, "--json")) == 3
    assert main(["why", str(log.path), "--request", "345678"]) == 1
    assert "the log has no end of it" in capsys.readouterr().err


def test_an_ambiguous_end_of_an_id_is_refused(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    log.done("a-1")
    log.done("b-1")
    assert main(["why", str(log.path), "--request", "1"]) == 1
    assert "2 requests end in 1" in capsys.readouterr().err


def test_a_file_that_was_emptied_is_followed_from_its_start(log: Log) -> None:
    for number in range(5):
        log.done(f"old-{number}")
    reader = LogReader(log.path)
    assert len(list(reader.lines())) == 5
    os.truncate(log.path, 0)
    log.done("new")
    found = [line for line, _ in reader.follow(until=lambda: True)]
    assert [line.request.request_id for line in found if isinstance(line, RequestDone)] == ["new"]


def test_totals_by_client(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    log.done("a", sources=(COPIES,))
    log.done("b")
    log.done("c", client="claude")
    log.error("d", client="claude")
    lines = (line for line, _ in LogReader(log.path).lines())
    totals = by_group(lines, "client")
    assert {name: (t.done, t.failed, t.output_tokens) for name, t in totals.items()} == {
        "codex/1": (2, 0, 22),
        "claude": (1, 1, 11),
    }
    assert totals["codex/1"].tokens_per_pass == pytest.approx(20 / 12)
    first, _ = printed(capsys, "summary", log.path, "--json")
    assert json.loads(first)["accepted_tokens"] == 8
    heading, *rows = printed(capsys, "summary", log.path)
    assert "tokens/pass" in heading
    assert len(rows) == 2


def test_several_choices_are_one_request_with_a_first_token_each(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.done("a", sources=(COPIES,), choices=3)
    (alone,) = by_group([only(log)], "client").values()
    log.done("b", sources=(COPIES,))
    (one,) = by_group([only(log)], "client").values()
    assert (alone.done, alone.output_tokens) == (1, 33)
    assert alone.tokens_per_pass == one.tokens_per_pass
    first, second = printed(capsys, "tail", log.path)
    assert "33 out in   1.00 s of 3 choices   5.0 tokens/pass kept 24/45" in first
    assert "11 out in   1.00 s   5.0 tokens/pass kept 8/15" in second


def test_totals_by_source_begin_with_what_was_accepted_most(log: Log) -> None:
    other = SourceStats(kind="prompt", rounds=5, drafted_tokens=30, accepted_tokens=3)
    log.done("a", sources=(other, COPIES))
    log.done("b", sources=(COPIES,))
    totals = by_source(line for line, _ in LogReader(log.path).lines())
    assert [(kind, t.requests, t.accepted_tokens) for kind, t in totals.items()] == [
        ("derived", 2, 16),
        ("prompt", 1, 3),
    ]


def test_the_stages_add_up_to_the_whole(log: Log) -> None:
    log.done("r", total_s=2.0)
    line = only(log)
    assert sum(stage.seconds for stage in stages(line)) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("group", "fields", "said"),
    [
        ("result", {"finish_reason": "cancelled"}, "The client left after 11 tokens"),
        ("request", {"speculation": OFF}, "the request turned it off"),
        ("timings_seconds", {"queue": 0.9}, "waited for a row"),
        ("timings_seconds", {"prefill": 0.8}, "no slot held anything like it"),
        ("timings_seconds", {"host": 0.4}, "other programs use its cores"),
        ("result", {"decode_passes": 0}, "nothing could be copied"),
        ("speculative", {"backend": "off"}, "--ngram-draft-tokens 15"),
        ("speculative", {"drafted_tokens": 10, "accepted_tokens": 1}, "9 of 10 drafted tokens"),
        ("speculative", {"ngram_index_wait_rounds": 7}, "7 rounds ran without"),
        ("ngram_archive", {"reason": "busy"}, "of no use: busy"),
    ],
)
def test_reasons(log: Log, group: str, fields: dict[str, object], said: str) -> None:
    log.done("r")
    assert any(said in reason for reason in reasons(changed(only(log), group, **fields)))


def test_a_request_always_has_a_reason(log: Log) -> None:
    log.done("r")
    assert list(reasons(only(log)))


def test_why_takes_the_last_or_the_slowest_or_a_named_one(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.done("a-1", total_s=5.0)
    log.done("b-2", sources=(COPIES,))
    assert printed(capsys, "why", log.path)[0].startswith("b-2 ")
    assert printed(capsys, "why", log.path, "--slowest")[0].startswith("a-1 ")
    shown = printed(capsys, "why", log.path, "--request", "2")
    assert shown[0] == "b-2 openai_chat_completions, 1.000 s"
    assert any("derived" in line for line in shown)


def test_why_does_not_share_out_the_time_of_several_choices(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.done("r", choices=3)
    shown = "\n".join(printed(capsys, "why", log.path))
    assert "3 choices: " in shown
    assert "decode: model" not in shown
    assert "decode: between" not in shown


def test_why_says_what_failed_and_what_is_missing(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.error("e")
    assert main(["why", str(log.path)]) == 1
    assert "e failed in prepare: too many" in capsys.readouterr().err
    assert main(["why", str(log.path), "--request", "x"]) == 1
    assert "no request in the log fits" in capsys.readouterr().err
    assert main(["tail", str(log.path.parent / "none")]) == 1
    assert "--request-log-jsonl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "ms"),
    [("90s", 910_000), ("1.5m", 910_000), ("1970-01-01T00:01", 60_000), ("1970-01-02", 86_400_000)],
)
def test_moments(text: str, ms: int) -> None:
    assert since(text, 1000.0) == ms


@pytest.mark.parametrize("text", ["", "soon", "10", "-5m", "2026-13-01"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(ConfigError, match="--since"):
        since(text, 1000.0)


def test_a_line_read_back_is_the_line_that_was_written(log: Log) -> None:
    log.start()
    log.done("r", sources=(COPIES,))
    log.error("e")
    for raw in log.path.read_bytes().splitlines():
        line = msgspec.json.decode(raw, type=AnyLine)
        assert msgspec.to_builtins(line) == json.loads(raw)
