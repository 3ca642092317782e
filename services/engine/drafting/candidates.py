"""Where a copy could start, and the evidence for it."""

from typing import NamedTuple

from services.engine.drafting.sources import Place, RequestSources
from shared.matching.contexts import TOKEN_BYTES
from shared.matching.hit import Matches
from shared.matching.lookup import Source

CERTAIN_MATCH = 12  # tokens; from here on ties go to the longest continuation, below to the newest
ON_TRACK, NEAR, ELSEWHERE = range(3)
UNIQUE, AGREEING, SPLIT = range(3)
BEHIND, AHEAD = 64, 256  # tokens around the last break that count as near it
MOST_TIES = 256  # ties that are looked at
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
    near = None
    if broken is not None and most < CERTAIN_MATCH:
        near = _near(query, broken)
        if near is not None and near[1] == most:
            at, length = near
            room = at.source.available(at.position, limit, matched=length)
            if room:
                return Candidate(at, length, NEAR, _ties(found, at), room)
    if most >= CERTAIN_MATCH:
        at, room = _roomiest(found, limit)
    else:
        source, (_, positions) = found[0]
        newest = int(positions[0]) if len(positions) == 1 else int(positions.max())
        at = Place(source, newest)
        room = source.available(at.position, limit, matched=most)
    return Candidate(at, most, ELSEWHERE, _ties(found, at), room)


def _near(query: bytes, broken: Place) -> tuple[Place, int] | None:
    source = broken.source
    token = int.from_bytes(query[:TOKEN_BYTES], "big")
    positions = source.near(broken.position - BEHIND, broken.position + AHEAD, token)
    best, chosen, distance = 0, 0, 0
    for position in positions.tolist():
        length = source.match_length(position, query)
        away = abs(position - broken.position)
        if length > best or (length == best and away < distance):
            best, chosen, distance = length, position, away
    return (Place(source, chosen), best) if best else None


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
    near = _near(query, broken)
    if near is None:
        return None
    at, length = near
    room = at.source.available(at.position, limit)
    return Candidate(at, length, NEAR, UNIQUE, room) if room else None
