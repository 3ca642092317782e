"""Who names a session, and how it can go wrong, as tables."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from services.gateway.identity import Headers, Identity, resolve
from shared.messages import SessionFork

NONE = Identity()


def named(
    *headers: tuple[str, str],
    client_metadata: Any = None,
    metadata: Any = None,
    native: bool = True,
) -> Identity:
    return resolve(Headers.of(CIMultiDict(headers)), client_metadata, metadata, native=native)


SESSION = ("x-ninfer-draft-session", "s")
PARENT = ("X-NInfer-Draft-Parent", "p")
GENERATION = ("X-NInfer-Draft-Generation", "7")
RESET = ("X-NInfer-Draft-Reset", "1")
KILO = ("x-session-affinity", "k")
FORK = SessionFork(parent=b"explicit:p", generation=7)
KEY = b"explicit:s"
CODEX = {"thread_id": "t", "session_id": "t"}
CLAUDE = {"user_id": json.dumps({"device_id": "d", "session_id": "c"})}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], NONE),
        ([SESSION], Identity(KEY)),
        ([SESSION, SESSION], Identity(reason="malformed_session")),
        ([(SESSION[0], "")], Identity(reason="malformed_session")),
        ([(SESSION[0], "a b")], Identity(reason="malformed_session")),
        ([(SESSION[0], "a\tb")], Identity(reason="malformed_session")),
        ([(SESSION[0], "a\x7f")], Identity(reason="malformed_session")),
        ([(SESSION[0], "x" * 240)], Identity(b"explicit:" + b"x" * 240)),
        ([(SESSION[0], "x" * 241)], Identity(reason="malformed_session")),
        ([(SESSION[0], "é" * 120)], Identity(b"explicit:" + "é".encode() * 120)),
        ([(SESSION[0], "é" * 121)], Identity(reason="malformed_session")),
        ([(SESSION[0], "\udcff")], Identity(b"explicit:\xff")),
        ([SESSION, RESET], Identity(KEY, reset=True)),
        ([SESSION, (RESET[0], "0")], Identity(KEY, reason="malformed_reset")),
        ([SESSION, (RESET[0], "true")], Identity(KEY, reason="malformed_reset")),
        ([SESSION, RESET, RESET], Identity(KEY, reason="malformed_reset")),
        ([SESSION, PARENT, GENERATION], Identity(KEY, FORK)),
        ([SESSION, PARENT], Identity(KEY, reason="parent_and_generation_need_each_other")),
        ([SESSION, GENERATION], Identity(KEY, reason="parent_and_generation_need_each_other")),
        ([SESSION, PARENT, GENERATION, RESET], Identity(KEY, reason="reset_with_parent")),
        ([SESSION, (PARENT[0], "s"), GENERATION], Identity(KEY, reason="parent_is_session")),
        ([SESSION, (PARENT[0], "a b"), GENERATION], Identity(KEY, reason="malformed_parent")),
        ([SESSION, PARENT, PARENT, GENERATION], Identity(KEY, reason="malformed_parent")),
        ([PARENT, GENERATION], Identity(reason="parent_without_session")),
        ([KILO, PARENT, GENERATION], Identity(reason="parent_without_session")),
        ([RESET], Identity(reason="reset_without_session")),
    ],
)
def test_explicit_names(headers: list[tuple[str, str]], expected: Identity) -> None:
    assert named(*headers) == expected


@pytest.mark.parametrize(
    "value", ["0", "", "-1", "+7", "7.0", "0x7", "7 ", "1e3", "٧", str(2**64), "9" * 400]
)
def test_a_generation_is_a_decimal_uint64_above_zero(value: str) -> None:
    found = named(SESSION, PARENT, (GENERATION[0], value))
    assert found == Identity(KEY, reason="malformed_generation")


@pytest.mark.parametrize(("value", "number"), [(str(2**64 - 1), 2**64 - 1), ("007", 7)])
def test_the_largest_generation_and_leading_zeros_count(value: str, number: int) -> None:
    found = named(SESSION, PARENT, (GENERATION[0], value))
    assert found.fork == SessionFork(parent=b"explicit:p", generation=number)


@pytest.mark.parametrize(
    ("headers", "client_metadata", "metadata", "expected"),
    [
        ([KILO], None, None, Identity(b"kilo:k")),
        ([KILO, RESET], None, None, Identity(b"kilo:k", reset=True)),
        ([KILO, KILO], None, None, Identity(reason="malformed_session")),
        ([(KILO[0], "a b")], None, None, Identity(reason="malformed_session")),
        ([], CODEX, None, Identity(b"codex:t")),
        ([], {"thread_id": "t"}, None, Identity(b"codex:t")),
        ([], {"thread_id": "t", "session_id": ""}, None, Identity(b"codex:t")),
        ([], {"thread_id": "t", "session_id": 5}, None, Identity(b"codex:t")),
        ([], {"thread_id": "t", "session_id": "u"}, None, Identity(reason="malformed_session")),
        ([], {"thread_id": ""}, None, Identity(reason="malformed_session")),
        ([], {"session_id": "t"}, None, NONE),
        ([], {"thread_id": 5}, None, NONE),
        ([], "thread_id", None, NONE),
        ([], None, CLAUDE, Identity(b"claude:c")),
        ([], None, {"user_id": "user_abc_account__session_123"}, NONE),
        ([], None, {"user_id": json.dumps({"device_id": "d"})}, NONE),
        ([], None, {"user_id": json.dumps({"session_id": ""})}, NONE),
        ([], None, {"user_id": json.dumps({"session_id": 5})}, NONE),
        ([], None, {"user_id": json.dumps(["session_id"])}, NONE),
        ([], None, {"user_id": '{"session_id": "c", "x": "' + "y" * 4096 + '"}'}, NONE),
        ([], None, {"user_id": "[" * 4000}, NONE),
        ([], None, {"user_id": '{"session_id": "a b"}'}, Identity(reason="malformed_session")),
        ([], None, {"user_id": 5}, NONE),
        ([], None, {"session_id": "c", "user": "c", "prompt_cache_key": "c"}, NONE),
        ([KILO], CODEX, None, Identity(reason="ambiguous_session")),
        ([], CODEX, CLAUDE, Identity(reason="ambiguous_session")),
        ([SESSION, KILO], CODEX, CLAUDE, Identity(KEY)),
        ([(SESSION[0], "a b"), KILO], None, None, Identity(reason="malformed_session")),
    ],
)
def test_native_names(
    headers: list[tuple[str, str]], client_metadata: Any, metadata: Any, expected: Identity
) -> None:
    found = named(*headers, client_metadata=client_metadata, metadata=metadata)
    assert found == expected


def test_native_names_count_only_with_the_option() -> None:
    assert named(KILO, client_metadata=CODEX, metadata=CLAUDE, native=False) == NONE
    assert named(SESSION, native=False) == Identity(KEY)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["thread_id", "session_id", "user_id", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@given(client_metadata=json_values, metadata=json_values)
def test_no_body_is_too_odd(client_metadata: Any, metadata: Any) -> None:
    found = named(client_metadata=client_metadata, metadata=metadata)
    assert (found.key is None) or len(found.key) <= 240 + len("claude:")
