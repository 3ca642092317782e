from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from services.engine.accept import verify

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=12)


def test_without_drafts_one_token_is_committed() -> None:
    assert verify([], iter([7])).committed == (7,)


def test_drafts_equal_to_the_draws_are_kept_and_a_bonus_follows() -> None:
    verdict = verify([1, 2], iter([1, 2, 9]))
    assert (verdict.committed, verdict.accepted) == ((1, 2, 9), 2)


def test_the_first_difference_is_replaced_by_the_recovered_token() -> None:
    verdict = verify([1, 5, 2], iter([1, 2, 9, 9]))
    assert (verdict.committed, verdict.accepted) == ((1, 2), 1)


def test_draws_behind_the_first_difference_are_never_computed() -> None:
    def one_draw() -> Iterator[int]:
        yield 4
        raise AssertionError("read too far")

    assert verify([3, 3, 3], one_draw()).committed == (4,)


@given(drafts=TOKENS, draws=st.lists(st.integers(0, 3), min_size=13, max_size=13))
def test_what_is_committed_is_a_prefix_of_the_draws(drafts: list[int], draws: list[int]) -> None:
    verdict = verify(drafts, iter(draws))
    assert list(verdict.committed) == draws[: verdict.accepted + 1]
    assert drafts[: verdict.accepted] == draws[: verdict.accepted]
