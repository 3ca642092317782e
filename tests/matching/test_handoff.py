from itertools import product

from shared.matching.handoff import hand_off

GRID = tuple(product(range(66), range(1, 64), range(1, 16)))  # found, maximum, neural width


def test_a_source_that_goes_on_gives_exactly_the_maximum() -> None:
    for found, maximum, neural in GRID:
        if found >= maximum + 2:
            assert hand_off(found, maximum, neural) == (maximum, False)


def test_a_tail_copy_beats_the_neural_width_and_leaves_a_token_beyond_the_bonus() -> None:
    for found, maximum, neural in GRID:
        drafts, _ = hand_off(found, maximum, neural)
        if found < maximum + 2 and drafts:
            assert drafts > neural
            assert drafts + 1 < found
            assert drafts <= maximum


def test_a_tail_is_dropped_only_if_it_is_no_wider_than_the_neural_drafts() -> None:
    for found, maximum, neural in GRID:
        if found < maximum + 2 and hand_off(found, maximum, neural).drafts == 0:
            assert found <= neural + 2


def test_a_handoff_is_a_match_that_gave_no_drafts() -> None:
    for found, maximum, neural in GRID:
        result = hand_off(found, maximum, neural)
        assert result.handed_off == (found > 0 and result.drafts == 0)


def test_without_room_there_is_neither_copy_nor_handoff() -> None:
    assert hand_off(5, 0, 0) == (0, False)


def test_without_a_neural_drafter_every_tail_of_three_is_copied() -> None:
    assert hand_off(3, 15, 0) == (1, False)
    assert hand_off(2, 15, 0) == (0, True)
