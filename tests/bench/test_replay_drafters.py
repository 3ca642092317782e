"""The peers propose what their descriptions say; the oracle is never beaten."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.replay.neural import CoinDrafter
from bench.replay.oracle import HindsightOracle
from bench.replay.peers import Drafter, LlamaMod, LlamaSimple, PromptLookup, VllmNgram
from bench.replay.round import replay
from bench.replay.suffix import SuffixDecoding
from bench.replay.tasks import Task, duplicate_share


def task(prompt: list[int], output: list[int]) -> Task:
    return Task("plain", "t", np.array(prompt, np.int32), (), np.array(output, np.int32))


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int32)


def test_prompt_lookup_takes_the_first_of_the_longest_matches() -> None:
    # 1 2 stands twice; the first occurrence wins although 9 1 2 is no longer match
    assert list(PromptLookup(3).propose(ids(1, 2, 5, 6, 7, 1, 2, 8, 4, 1, 2), 10)) == [5, 6, 7]
    assert list(PromptLookup(3).propose(ids(8, 1, 2, 5, 6, 8, 2, 9, 2), 10)) == [5, 6, 8]
    assert list(PromptLookup().propose(ids(1, 2, 3), 10)) == []


def test_vllm_takes_the_earliest_of_the_longest_matches_of_two_or_more() -> None:
    assert list(VllmNgram(2).propose(ids(1, 2, 5, 3, 1, 2, 6, 3, 1, 2), 10)) == [6, 3]
    assert list(VllmNgram(2).propose(ids(1, 2, 5, 1, 2, 6, 1, 2), 10)) == [5, 1]
    assert list(VllmNgram(2).propose(ids(2, 5, 6, 1, 2), 10)) == []


def test_llama_simple_wants_twelve_tokens_before_and_behind() -> None:
    run = list(range(100, 160))
    text = ids(7, *run, *range(300, 320), *run[:20])
    assert list(LlamaSimple().propose(text, 64)) == [*run[20:], *range(300, 308)]
    short = ids(7, *range(300, 360), *run[:14], 5, 5, *run[:14])
    assert list(LlamaSimple().propose(short, 64)) != []
    thirteen_follow = ids(*range(300, 370), *run[:12], 1, *run[:12])
    assert list(LlamaSimple().propose(thirteen_follow, 64)) == [1, *run[:12]]
    eleven_match = ids(*range(300, 370), *run[:12], *run[:11])
    assert list(LlamaSimple().propose(eleven_match, 64)) == []


@pytest.mark.parametrize(("known", "drafted"), [(31, 0), (32, 48), (60, 64)])
def test_llama_mod_drops_a_draft_that_ends_before_48_tokens(known: int, drafted: int) -> None:
    gram = list(range(100, 124))
    prompt = [*gram, *range(200, 200 + known), *gram[:16]]
    mod = LlamaMod()
    mod.begin(task(prompt, [1]))
    # too few new tokens to be learned, so the walk ends with the prompt
    assert list(mod.propose(ids(*prompt, *gram[16:]), 64)) == prompt[24 : 24 + drafted]


def test_suffix_decoding_follows_the_most_frequent_path() -> None:
    text = ids(1, 2, 3, 9, 1, 2, 4, 9, 1, 2, 4, 8, 1, 2)
    # two tokens match: 4 follows in two of three places, then 9 or 8 in one of two
    assert list(SuffixDecoding(8, 1.0).propose(text, 8))[:1] == [4]
    assert list(SuffixDecoding(8, least_score=50.0).propose(text, 8)) == []


@given(
    st.lists(st.integers(0, 3), min_size=2, max_size=40),
    st.lists(st.integers(0, 3), min_size=2, max_size=60),
    st.sampled_from([2, 5, 15]),
)
def test_nobody_beats_the_oracle(prompt: list[int], output: list[int], width: int) -> None:
    sample = task(prompt, output)
    best = replay(sample, HindsightOracle(width), width)
    others: list[Drafter] = [
        PromptLookup(width),
        VllmNgram(width, shortest=1),
        SuffixDecoding(width),
    ]
    for drafter in others:
        assert replay(sample, drafter, width).passes >= best.passes
    assert best.drafted == best.accepted


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=20),
    st.lists(st.integers(0, 2), min_size=2, max_size=30),
)
def test_the_oracle_finds_what_a_slow_search_finds(prompt: list[int], output: list[int]) -> None:
    width = 6
    oracle = HindsightOracle(width)
    oracle.begin(task(prompt, output))
    text = [*prompt, *output]
    for done in range(1, len(output)):
        wanted = output[done : done + width]
        longest = max(
            next((i for i, t in enumerate(wanted) if text[start + i] != t), len(wanted))
            for start in range(len(prompt) + done)
        )
        got = oracle.propose(np.array([*prompt, *output[:done]], np.int32), width)
        assert list(got) == wanted[:longest]


def test_a_replay_counts_the_pass_of_the_prompt_and_every_round() -> None:
    outcome = replay(task([1, 2, 3, 4, 5, 9], [1, 2, 3, 4, 5]), PromptLookup(10), 10)
    # 1 from the prompt's pass; 2 3 4 5 accepted, and nothing is left
    assert (outcome.tokens, outcome.passes, outcome.accepted) == (5, 2, 4)
    assert outcome.drafted == 6  # 2 3 4 5 9 1: it cannot know where the output ends
    assert outcome.speed(0.1) == pytest.approx(5 / 2.6)


def test_the_coin_is_right_as_often_as_it_says_and_the_same_in_each_run() -> None:
    sample = task([1], list(range(2000, 4000)))
    coin = CoinDrafter(3, 0.75)
    coin.begin(sample)
    first = [t for i in range(0, 1998, 3) for t in coin.propose(sample.output_ids[: 1 + i], 9)]
    coin.begin(sample)
    again = [t for i in range(0, 1998, 3) for t in coin.propose(sample.output_ids[: 1 + i], 9)]
    right = np.mean(np.array(first) == sample.output_ids[: len(first)])
    assert first == again
    assert 0.71 < right < 0.79


def test_duplicate_share_is_that_of_twelve_grams() -> None:
    assert duplicate_share(np.arange(100)) == 0
    assert duplicate_share(np.zeros(100, np.int32)) == pytest.approx(1 - 1 / 89)
    assert duplicate_share(np.arange(5)) == 0
