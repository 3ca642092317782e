import msgspec
import numpy as np
import pytest

from shared.messages import (
    BuildIndex,
    Cancel,
    GatewayToEngine,
    GatewayToIndexer,
    Generate,
    IndexedSource,
    IndexReady,
    Sampling,
)
from shared.wire import Codec, WireError


def generate(prompt_ids: np.ndarray) -> Generate:
    return Generate(
        request_id="r",
        prompt_ids=prompt_ids,
        max_output_tokens=3,
        stop_ids=(2,),
        sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0, min_p=0.0, seed=2**64 - 1),
        expect_index=True,
        queue_deadline_s=1.0,
    )


def through(codec: Codec, message: object) -> object:  # type: ignore[type-arg]
    return codec.decode([bytes(frame) for frame in codec.encode(message)])


def test_a_message_comes_back_with_its_array() -> None:
    received = through(Codec(GatewayToEngine), generate(np.arange(5, dtype=np.int32)))
    assert isinstance(received, Generate)
    assert received.prompt_ids.tolist() == [0, 1, 2, 3, 4]
    assert received.sampling.seed == 2**64 - 1


def test_a_received_array_is_a_read_only_view_of_its_frame() -> None:
    codec: Codec[GatewayToEngine] = Codec(GatewayToEngine)
    frames = [bytes(frame) for frame in codec.encode(generate(np.arange(5, dtype=np.int32)))]
    received = codec.decode(frames)
    assert isinstance(received, Generate)
    assert np.shares_memory(received.prompt_ids, np.frombuffer(frames[1], dtype=np.int32))
    with pytest.raises(ValueError, match="read-only"):
        received.prompt_ids[0] = 1


def test_empty_and_strided_arrays_travel() -> None:
    codec: Codec[GatewayToIndexer] = Codec(GatewayToIndexer)
    strided = np.arange(10, dtype=np.int32)[::2]
    for array in (np.empty(0, dtype=np.int32), strided):
        message = BuildIndex(request_id="r", prompt_ids=array, tool_texts=(), predicted=None)
        received = through(codec, message)
        assert isinstance(received, BuildIndex)
        assert received.prompt_ids.tolist() == array.tolist()


def test_a_message_of_another_direction_is_garbage() -> None:
    frames = Codec(GatewayToEngine).encode(Cancel(request_id="r"))
    with pytest.raises(WireError):
        Codec(IndexReady).decode([bytes(frame) for frame in frames])


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"\xff\xff\xff"],
        [b"\x81\xa4type\xa7Unknown"],
        [b"\x82\xa4type\xa6Cancel\xa1x\x01"],
    ],
)
def test_garbage_is_one_kind_of_error(frames: list[bytes]) -> None:
    with pytest.raises(WireError):
        Codec(GatewayToEngine).decode(frames)


def test_an_unknown_field_is_refused() -> None:
    header = msgspec.msgpack.encode({"type": "Cancel", "request_id": "r", "more": 1})
    with pytest.raises(WireError):
        Codec(GatewayToEngine).decode([header])


def test_a_missing_frame_is_garbage() -> None:
    frames = Codec(GatewayToEngine).encode(generate(np.arange(5, dtype=np.int32)))
    with pytest.raises(WireError):
        Codec(GatewayToEngine).decode([bytes(frames[0])])


def test_an_array_of_another_type_cannot_be_sent() -> None:
    source = IndexedSource(
        kind="prompt", tokens=np.zeros(3, dtype=np.float64), order=np.zeros(3, dtype=np.int32)
    )
    message = IndexReady(request_id="r", sources=(source,), build_s=0.0)
    with pytest.raises(TypeError):
        Codec(IndexReady).encode(message)
