import json
import threading

import msgspec
import numpy as np

from services.indexer.builder import Builder
from shared.matching.contexts import BOUNDARY
from shared.matching.lookup import Match, continuation, find
from shared.matching.segment import SegmentIndex
from shared.messages import BuildIndex, IndexReady
from tests.indexer.stand_in import SPECIAL_ID, CharTokenizer, int32, listing


def request(prompt_ids: np.ndarray, *tool_texts: str, predicted: str | None = None) -> BuildIndex:
    return BuildIndex(
        request_id="r", prompt_ids=prompt_ids, tool_texts=tool_texts, predicted=predicted
    )


def parts(message: BuildIndex, *, max_context: int = 1000) -> list[IndexReady]:
    return list(Builder(CharTokenizer(), max_context).build(message, threading.Event()))


def built(message: BuildIndex, *, max_context: int = 1000) -> IndexReady:
    """The first part, which holds everything but the views."""
    return parts(message, max_context=max_context)[0]


def views(*tool_texts: str, max_context: int = 1000) -> list[str]:
    _, *later = parts(request(int32(1, 2), *tool_texts), max_context=max_context)
    return [text for ready in later for text in text_of(indexes(ready)["derived"]).split("|")]


def indexes(ready: IndexReady) -> dict[str, SegmentIndex]:
    """Each kind's text by itself; what was derived stands behind the prompt in one source."""
    found = {}
    for source in ready.sources:
        stop = len(source.tokens)
        for span in source.spans:
            if span.kind == "derived":
                found["derived"] = SegmentIndex.build(source.tokens[span.start : span.stop])
                assert source.tokens[span.start - 1] == BOUNDARY
                stop = span.start - 1
        found[source.kind] = SegmentIndex.build(source.tokens[:stop])
    return found


def text_of(index: SegmentIndex) -> str:
    return "".join("|" if t < 0 else chr(t) for t in index.tokens)


def test_sources_come_in_the_order_of_indexing() -> None:
    ready = built(request(int32(1, 2, 3), listing("a", "b", "c"), predicted="later"))
    assert [s.kind for s in ready.sources] == ["prompt", "predicted"]
    assert [span.kind for span in ready.sources[0].spans] == ["derived"]


def test_special_ids_of_the_prompt_are_boundaries() -> None:
    prompt = indexes(built(request(int32(5, 6, SPECIAL_ID, 7, 8))))["prompt"]
    assert prompt.tokens.tolist() == [5, 6, -1, 7, 8]


def test_a_special_token_spelled_out_in_a_tool_result_is_plain_text() -> None:
    ready = built(request(int32(1, 2), listing("a", "\x00", "c")))
    assert text_of(indexes(ready)["derived"]) == "a\n\x00\nc"


def test_derived_sources_are_kept_apart_by_boundaries() -> None:
    ready = built(request(int32(1, 2), listing("a", "b", "c"), listing("x", "y", "z")))
    derived = indexes(ready)["derived"]
    assert text_of(derived) == "a\nb\nc|x\ny\nz"
    found = find([ord("b"), ord("\n")], [derived], 20)
    assert found is not None
    assert continuation(found, [derived]).tolist() == [ord("c")]


def test_derived_tokens_stop_at_the_budget_and_the_last_source_is_cut() -> None:
    ready = built(request(int32(1, 2), *[listing("aa", "bb", "cc")] * 3), max_context=11)
    assert text_of(indexes(ready)["derived"]) == "aa\nbb\ncc|aa\n"


def test_nothing_is_tokenised_once_the_budget_is_spent() -> None:
    tokenizer = CharTokenizer()
    message = request(int32(1, 2), *[listing("aa", "bb", "cc")] * 5)
    assert len(list(Builder(tokenizer, 8).build(message, threading.Event()))) == 1
    assert [text for text in tokenizer.encoded if ":" not in text] == ["aa\nbb\ncc"]


def test_the_budget_leaves_the_prompt_whole() -> None:
    prompt = np.arange(1, 50, dtype=np.int32)
    assert len(indexes(built(request(prompt), max_context=10))["prompt"].tokens) == 49


def test_a_prediction_is_limited_to_one_context() -> None:
    ready = built(request(int32(1, 2), predicted="x" * 50), max_context=10)
    assert len(indexes(ready)["predicted"].tokens) == 10


def test_sources_with_nothing_to_copy_are_left_out() -> None:
    assert built(request(int32(1), "no listing", predicted="")).sources == ()


def test_indexes_answer_like_ones_built_in_place() -> None:
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, 5, 500).astype(np.int32)
    received = indexes(built(request(prompt)))["prompt"]
    reference = SegmentIndex.build(prompt, {SPECIAL_ID})
    for end in range(1, 500, 13):
        assert find(prompt[:end], [received], 65) == find(prompt[:end], [reference], 65)


def test_a_cancelled_build_stops_before_the_next_source() -> None:
    tokenizer = CharTokenizer()
    cancelled = threading.Event()

    class Cancelling(CharTokenizer):
        def encode_text(self, text: str) -> np.ndarray:
            cancelled.set()
            return tokenizer.encode_text(text)

    message = request(int32(1, 2), *[listing("a", "b", "c")] * 4, predicted="p")
    assert list(Builder(Cancelling(), 100).build(message, cancelled)) == []
    assert len(tokenizer.encoded) == 1


def test_the_newest_file_wins_a_tie() -> None:
    ready = built(request(int32(1, 2), listing("a", "b", "c1"), listing("a", "b", "c2")))
    derived = indexes(ready)["derived"]
    found = find([ord(c) for c in "b\nc"], [derived], 1)
    assert found == Match(0, 12, 3, 1)


def test_views_of_a_file_come_in_a_part_of_their_own() -> None:
    assert views(listing("a", '"b"', "c")) == ['a\\n\\"b\\"\\nc', '-a\n-"b"\n-c', ' a\n "b"\n c']


def test_a_result_without_numbers_has_views_too() -> None:
    assert " x = 1\n \n y = 2\n" in views("x = 1\n\ny = 2\n")


def test_a_prompt_without_tool_results_has_no_views() -> None:
    assert len(parts(request(int32(1, 2, 3), predicted="text"))) == 1


def test_views_spend_what_the_derived_sources_leave_on_the_newest_files() -> None:
    found = views(listing("old", "o", "o"), listing("new", "n", "n"), max_context=14 + 11)
    assert found == [" new\n n\n n"]


def other(*, users: tuple[str, ...] = (), calls: tuple[str, ...] = ()) -> BuildIndex:
    return msgspec.structs.replace(
        request(int32(1, 2), listing("tool", "t", "t")), user_texts=users, call_arguments=calls
    )


def test_a_pasted_block_has_views_behind_those_of_tool_results() -> None:
    _, later = parts(other(users=("see\n```\na\nb\nc\n```",)))
    assert text_of(indexes(later)["derived"]).split("|")[2:] == [
        " a\n b\n c\n",
        "tool\\nt\\nt",
        "-tool\n-t\n-t",
        " tool\n t\n t",
    ]


def test_a_pasted_listing_and_a_calls_argument_are_sources_older_than_tool_results() -> None:
    argument = json.dumps({"path": "f", "content": 'x\n"y"\nz'})
    ready = built(other(users=(listing("a", "b", "c"),), calls=(argument,)))
    assert text_of(indexes(ready)["derived"]).split("|") == [
        "a\nb\nc",
        'x\n"y"\nz',
        "tool\nt\nt",
    ]


def test_tool_results_come_first_in_the_budget() -> None:
    message = other(users=(listing("a", "b", "c"),))
    assert text_of(indexes(built(message, max_context=10))["derived"]) == "a\n|tool\nt\nt"


def test_tool_results_are_told_apart_in_the_prompt() -> None:
    tool = "the text of a tool result"
    prompt = int32(*map(ord, f"before {tool} after"))
    (span,) = built(request(prompt, tool)).sources[0].spans
    assert (span.kind, span.start, span.stop) == ("tool", 7, 7 + len(tool))


def test_tool_results_that_were_joined_with_the_template_at_their_edges_are_found() -> None:
    tool = "the text of a tool result"
    prompt = int32(*map(ord, f"before_{tool[2:-3]}_after"))
    (span,) = built(request(prompt, tool)).sources[0].spans
    assert (span.start, span.stop) == (7, 7 + len(tool) - 5)


def test_a_tool_result_that_the_prompt_does_not_hold_has_no_span() -> None:
    prompt = int32(*map(ord, "something else entirely"))
    assert built(request(prompt, "the text of a tool result")).sources[0].spans == ()


def test_the_same_tool_result_twice_is_found_in_both_places() -> None:
    tool = "the text of a tool result"
    prompt = int32(*map(ord, f"{tool}, and {tool}"))
    spans = built(request(prompt, tool, tool)).sources[0].spans
    assert [(s.start, s.stop) for s in spans] == [(0, 25), (31, 56)]


def test_a_json_wrapped_result_without_numbers_is_unescaped() -> None:
    wrapped = json.dumps({"output": 'x = "1"\ny = 2\n', "metadata": {"exit_code": 0}})
    assert text_of(indexes(built(request(int32(1, 2), wrapped)))["derived"]) == 'x = "1"\ny = 2\n'


def test_a_plain_result_is_derived_from_nothing() -> None:
    assert "derived" not in indexes(built(request(int32(1, 2), "x = 1\ny = 2\n")))
