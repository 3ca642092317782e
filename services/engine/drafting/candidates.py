"""Where a copy could start, and the evidence for it."""

from typing import NamedTuple

import numpy as np

from services.engine.drafting.sources import Place, RequestSources
from shared.matching.contexts import context_ids
from shared.matching.hit import Matches
from shared.matching.lookup import Source

CERTAIN_MATCH = 12  # tokens; from here on ties go to the longest continuation, below to the newest
ON_TRACK, NEAR, ELSEWHERE, ACROSS = range(4)
UNIQUE, AGREEING, SPLIT, ALIKE = range(4)
BEHIND, AHEAD = 64, 256  # tokens around the last break that count as near it
MOST_TIES = 256  # ties that are looked at
MOST_NEAR, MOST_NEW = 8, 16  # places whose surroundings are compared
SURROUNDINGS = 24  # tokens before a place, and before the output's end, in any order
ALIKE_SHARE = 0.65  # of the surrounding tokens, from which on a place counts as alike
ACROSS_TOKENS = 4  # a gap of more tokens is not guessed across
STRONG_TRACK = 8  # tokens; a copy that goes on behind so many needs no other candidate


class Candidate(NamedTuple):
    at: Place
    length: int  # tokens of the ledger that stand before it, 1..64
    place: int
    ties: int
    available: int  # tokens that may be copied


def best_candidate(
    sources: RequestSources, query: bytes, track: Place | None, broken: Place | None, limit: int
) -> Candidate | None:
    if limit < 1:
        return None
    tracked = 0
    if track is not None:
        tracked = track.source.match_length(track.position, query)
        room = track.source.available(track.position, limit, matched=tracked)
        if tracked >= STRONG_TRACK and room:
            return Candidate(track, tracked, ON_TRACK, UNIQUE, room)
    found: list[tuple[Source, Matches]] = []
    most = 0
    for source in reversed(sources.indexes):
        matches = source.matches(query, min_match=max(most, 1))
        if matches is None:
            continue
        if matches.length > most:
            found, most = [], matches.length
        found.append((source, matches))
    if not found:
        return None
    if track is not None and tracked == most and room:
        return Candidate(track, tracked, ON_TRACK, _ties(found, track), room)
    if most >= CERTAIN_MATCH:
        at, room = _roomiest(found, limit)
        return Candidate(at, most, ELSEWHERE, _ties(found, at), room)
    recent = context_ids(query)
    near = _near(recent, broken, most, most) if broken is not None else None
    source, (_, positions) = found[0]
    if near is not None:
        at = Place(near.source, int(near.positions[0]))
    else:
        at = Place(source, int(positions[0]) if len(positions) == 1 else int(positions.max()))
    ties = _ties(found, at)
    if ties == SPLIT:
        at, ties = _most_alike(found, near, recent)
    place = NEAR if broken is not None and _is_near(at, broken) else ELSEWHERE
    room = at.source.available(at.position, limit, matched=most)
    return Candidate(at, most, place, ties, room) if room else None


def across_candidate(broken: Place, behind: int, limit: int) -> Candidate | None:
    """The text goes on where the last copy broke as if `behind` tokens had been replaced there."""
    if not 1 <= behind <= ACROSS_TOKENS:
        return None
    at = Place(broken.source, broken.position + behind)
    room = at.source.available(at.position, limit)
    return Candidate(at, behind, ACROSS, UNIQUE, room) if room > 0 else None


def _is_near(at: Place, broken: Place) -> bool:
    away = at.position - broken.position
    return at.source is broken.source and -BEHIND <= away < AHEAD


def _most_alike(
    found: list[tuple[Source, Matches]], near: "_Near | None", query: np.ndarray
) -> tuple[Place, int]:
    """Of places with equal matches, the one whose surroundings hold most of the tokens that
    surround the output's end: the nearest, then the newest of equals."""
    wanted = query[:SURROUNDINGS]
    places = [(near.source, near.positions[:MOST_NEAR])] if near else []
    left = MOST_NEW
    for source, (_, positions) in found:
        newest = np.sort(positions)[: -left - 1 : -1]
        places.append((source, newest))
        left -= len(newest)
        if left <= 0:
            break
    standing = [source.before(positions, SURROUNDINGS) for source, positions in places]
    alike = (np.concatenate(standing, axis=1)[:, :, None] == wanted).any(0).sum(1)
    i_best = int(alike.argmax())
    ties = ALIKE if alike[i_best] >= ALIKE_SHARE * len(wanted) else SPLIT
    for source, positions in places:
        if i_best < len(positions):
            return Place(source, int(positions[i_best])), ties
        i_best -= len(positions)
    raise AssertionError("one of the places is the most alike")


class _Near(NamedTuple):
    source: Source
    positions: np.ndarray  # [at least 1], the nearest to the break first


def _near(query: np.ndarray, broken: Place, least: int, most: int = CERTAIN_MATCH) -> _Near | None:
    """The longest matches around a break, of `least` to `most` tokens as far as that is known;
    lengths are counted up to `CERTAIN_MATCH`."""
    source, middle = broken
    positions = source.near(middle - BEHIND, middle + AHEAD, int(query[0]))
    if not len(positions):
        return None
    if most > 1:
        wanted = query[:CERTAIN_MATCH, None]
        agrees = source.before(positions, len(wanted)) == wanted
        lengths = np.logical_and.accumulate(agrees).sum(0)
        length = int(lengths.max())
        if length < least:
            return None
        positions = positions[lengths == length]
    if len(positions) > 1:
        positions = positions[np.abs(positions - middle).argsort(kind="stable")]
    return _Near(source, positions)


def _roomiest(found: list[tuple[Source, Matches]], limit: int) -> tuple[Place, int]:
    """The place with the most to copy, in the newest of equal sources."""
    best, most = None, 0
    for source, matches in found:
        position, room = source.roomiest(matches, limit)
        if room > most:
            best, most = Place(source, position), room
    assert best is not None
    return best, most


def _ties(found: list[tuple[Source, Matches]], at: Place) -> int:
    """Whether the longest match has one place, or several that go on alike, or not."""
    if len(found) == 1 and len(found[0][1].positions) == 1:
        return UNIQUE
    token = at.source.token_at(at.position)
    for source, (_, positions) in found:
        if len(positions) == 1:
            if source.token_at(int(positions[0])) != token:
                return SPLIT
        elif (source.next_tokens(positions[-MOST_TIES:]) != token).any():
            return SPLIT
    return AGREEING


def bridge_candidate(query: bytes, broken: Place, limit: int) -> Candidate | None:
    near = _near(context_ids(query), broken, 1)
    if near is None:
        return None
    at = Place(near.source, int(near.positions[0]))
    room = at.source.available(at.position, limit)
    length = at.source.match_length(at.position, query)
    return Candidate(at, length, NEAR, UNIQUE, room) if room else None
