"""The wire format, byte by byte: a change here is a change for every other process."""

from typing import Any

import numpy as np
import pytest

from shared.messages import (
    ArchiveToEngine,
    ArchiveToGateway,
    Attach,
    Attached,
    Bind,
    Bound,
    Deleted,
    DeleteSessions,
    EngineToArchive,
    Forget,
    GatewayToArchive,
    ListSessions,
    NotPublished,
    Publish,
    Published,
    Release,
    Revoked,
    SessionFacts,
    SessionFork,
    Sessions,
    Unbound,
)
from shared.wire import Codec, WireError

TOKENS = np.array([5, 6, 7, -1], np.int32)
SPAN_ID = np.array([1, 2**63], np.uint64)
TOKENS_HEX = "050000000600000007000000ffffffff"
SPAN_ID_HEX = "01000000000000000000000000000080"
FACTS = SessionFacts(
    session_id="0123456789abcdef",
    generation=2,
    sources=3,
    session_bytes=4,
    bound=True,
    last_used_unix_s=1.5,
)

# union, message, its header as JSON-like text, the frames behind it
GOLDEN: list[tuple[Any, Any, str, list[str]]] = [
    (
        EngineToArchive,
        Attach(engine_id="e", generation_floor=9, bindings=("r",)),
        "84a474797065a6417474616368a9656e67696e655f6964a165b067656e65726174696f6e5f666c6f6f7209"
        "a862696e64696e677391a172",
        [],
    ),
    (
        EngineToArchive,
        Bind(
            engine_id="e",
            binding="r",
            key=b"\xff",
            fork=SessionFork(parent=b"p", generation=3),
            reset=False,
            known=SPAN_ID,
        ),
        "87a474797065a442696e64a9656e67696e655f6964a165a762696e64696e67a172a36b6579c401ff"
        "a4666f726b83a474797065ab53657373696f6e466f726ba6706172656e74c40170aa67656e65726174696f6e03"
        "a57265736574c2a56b6e6f776e9200a33c7538",
        [SPAN_ID_HEX],
    ),
    (
        EngineToArchive,
        Publish(binding="r", tokens=TOKENS, parts=TOKENS[:3]),
        "84a474797065a75075626c697368a762696e64696e67a172a6746f6b656e739200a33c6934"
        "a570617274739201a33c6934",
        [TOKENS_HEX, TOKENS_HEX[:24]],
    ),
    (
        EngineToArchive,
        Release(binding="r"),
        "82a474797065a752656c65617365a762696e64696e67a172",
        [],
    ),
    (
        ArchiveToEngine,
        Attached(archive_id="a", total_bytes=1),
        "83a474797065a84174746163686564aa617263686976655f6964a161ab746f74616c5f627974657301",
        [],
    ),
    (
        ArchiveToEngine,
        Bound(
            binding="r",
            generation=1,
            span_ids=SPAN_ID,
            missing=SPAN_ID,
            spans=(TOKENS,),
            session_bytes=2,
            total_bytes=3,
        ),
        "88a474797065a5426f756e64a762696e64696e67a172aa67656e65726174696f6e01a87370616e5f696473"
        "9200a33c7538a76d697373696e679201a33c7538a57370616e73919202a33c6934"
        "ad73657373696f6e5f627974657302ab746f74616c5f627974657303",
        [SPAN_ID_HEX, SPAN_ID_HEX, TOKENS_HEX],
    ),
    (
        ArchiveToEngine,
        Unbound(binding="r", reason="busy", total_bytes=1),
        "84a474797065a7556e626f756e64a762696e64696e67a172a6726561736f6ea462757379"
        "ab746f74616c5f627974657301",
        [],
    ),
    (
        ArchiveToEngine,
        Revoked(binding="r"),
        "82a474797065a75265766f6b6564a762696e64696e67a172",
        [],
    ),
    (ArchiveToEngine, Forget(), "81a474797065a6466f72676574", []),
    (
        ArchiveToEngine,
        Published(binding="r", generation=1, sources=2, session_bytes=3, total_bytes=4),
        "86a474797065a95075626c6973686564a762696e64696e67a172aa67656e65726174696f6e01"
        "a7736f757263657302ad73657373696f6e5f627974657303ab746f74616c5f627974657304",
        [],
    ),
    (
        ArchiveToEngine,
        NotPublished(binding="r", total_bytes=4),
        "83a474797065ac4e6f745075626c6973686564a762696e64696e67a172ab746f74616c5f627974657304",
        [],
    ),
    (
        GatewayToArchive,
        ListSessions(ticket=1),
        "82a474797065ac4c69737453657373696f6e73a67469636b657401",
        [],
    ),
    (
        GatewayToArchive,
        DeleteSessions(ticket=2, session_id=None),
        "83a474797065ae44656c65746553657373696f6e73a67469636b657402aa73657373696f6e5f6964c0",
        [],
    ),
    (
        ArchiveToGateway,
        Sessions(ticket=1, sessions=(FACTS,), total_bytes=5, capacity_bytes=6, evicted_spans=7),
        "86a474797065a853657373696f6e73a67469636b657401a873657373696f6e739187a474797065"
        "ac53657373696f6e4661637473aa73657373696f6e5f6964b030313233343536373839616263646566"
        "aa67656e65726174696f6e02a7736f757263657303ad73657373696f6e5f627974657304a5626f756e64c3"
        "b06c6173745f757365645f756e69785f73cb3ff8000000000000ab746f74616c5f627974657305"
        "ae63617061636974795f627974657306ad657669637465645f7370616e7307",
        [],
    ),
    (
        ArchiveToGateway,
        Deleted(ticket=2, sessions=1),
        "83a474797065a744656c65746564a67469636b657402a873657373696f6e7301",
        [],
    ),
]


@pytest.mark.parametrize(
    ("union", "message", "header", "frames"), GOLDEN, ids=lambda v: type(v).__name__
)
def test_a_message_is_encoded_as_ever(
    union: Any, message: Any, header: str, frames: list[str]
) -> None:
    encoded = [bytes(frame).hex() for frame in Codec(union).encode(message)]
    assert encoded == [header, *frames]


@pytest.mark.parametrize(
    ("union", "message", "header", "frames"), GOLDEN, ids=lambda v: type(v).__name__
)
def test_its_bytes_decode_to_the_same_and_to_nothing_else(
    union: Any, message: Any, header: str, frames: list[str]
) -> None:
    codec: Codec[Any] = Codec(union)
    raw = [bytes.fromhex(part) for part in (header, *frames)]
    decoded = codec.decode(raw)
    assert [bytes(frame) for frame in codec.encode(decoded)] == raw
    with pytest.raises(WireError):
        codec.decode([raw[0][:-1], *raw[1:]])
    if frames:
        with pytest.raises(WireError):
            codec.decode(raw[:-1])
