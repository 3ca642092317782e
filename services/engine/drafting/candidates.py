"""Where a copy could start, and the evidence for it."""

from typing import NamedTuple

from services.engine.drafting.sources import Place, RequestSources
from services.engine.drafting.surroundings import TOKENS as SURROUNDINGS
from services.engine.drafting.surroundings import Surroundings
from shared.matching.contexts import TOKEN_BYTES
from shared.matching.hit import Matches
from shared.matching.lookup import Source

CERTAIN_MATCH = 12  # tokens; from here on ties go to the longest continuation, below to the newest
ON_TRACK, NEAR, ELSEWHERE, ACROSS = range(4)
UNIQUE, AGREEING, SPLIT, ALIKE = range(4)
BEHIND, AHEAD = 64, 256  # tokens around the last break that count as near it
MOST_TIES = 256  # ties that are looked at
MOST_NEW = 16  # places whose surroundings are compared, beside those near the last break
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
    sources: RequestSources,
    query: bytes,
    track: Place | None,
    broken: Place | None,
    limit: int,
    *,
    surroundings: Surroundings,
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
    near = _near(query, broken, most) if broken is not None else None
    if near is not None:
        at = Place(near.source, near.positions[0])
    else:
        source, matches = found[0]
        at = Place(source, matches.newest)
    ties = _ties(found, at)
    if ties == SPLIT:
        at, ties = _most_alike(found, near, query, surroundings)
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
    found: list[tuple[Source, Matches]],
    near: "_Near | None",
    query: bytes,
    surroundings: Surroundings,
) -> tuple[Place, int]:
    """Of places with equal matches, the one whose surroundings hold most of the tokens that
    surround the output's end: the nearest, then the newest of equals."""
    places = [(near.source, near.positions)] if near else []
    left = MOST_NEW
    for source, matches in found:
        newest = matches.newest_of(left)
        places.append((source, newest))
        left -= len(newest)
        if left <= 0:
            break
    contexts: list[bytes | bytearray] = []
    for source, positions in places:
        contexts += source.contexts(positions, SURROUNDINGS)
    alike = surroundings.shared(query, contexts)
    i_best = alike.index(max(alike))
    wanted = min(len(query) // TOKEN_BYTES, SURROUNDINGS)
    ties = ALIKE if alike[i_best] >= ALIKE_SHARE * wanted else SPLIT
    for source, positions in places:
        if i_best < len(positions):
            return Place(source, positions[i_best]), ties
        i_best -= len(positions)
    raise AssertionError("one of the places is the most alike")


class _Near(NamedTuple):
    source: Source
    positions: list[int]  # [at least 1], the nearest to the break first


def _near(query: bytes, broken: Place, length: int) -> _Near | None:
    """The places around a break whose match has at least `length` tokens."""
    source, middle = broken
    positions = source.near(middle, BEHIND, AHEAD, query[: TOKEN_BYTES * length])
    return _Near(source, positions) if positions else None


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
        if not source.go_on_alike(positions[-MOST_TIES:], token):
            return SPLIT
    return AGREEING


def bridge_candidate(query: bytes, broken: Place, limit: int) -> Candidate | None:
    """The longest match around a break, its length counted up to `CERTAIN_MATCH`."""
    found = None
    for length in range(1, min(CERTAIN_MATCH, len(query) // TOKEN_BYTES) + 1):
        longer = _near(query, broken, length)
        if longer is None:
            break
        found = longer
    if found is None:
        return None
    at = Place(found.source, found.positions[0])
    room = at.source.available(at.position, limit)
    length = at.source.match_length(at.position, query)
    return Candidate(at, length, NEAR, UNIQUE, room) if room else None
