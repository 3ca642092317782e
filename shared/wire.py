"""Messages to frames and back: one msgpack header, then one raw frame for each array.

A `Codec` belongs to one socket: its decoder's hook reads the frames of the message at hand, so it
must not be shared between threads.
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

Message = TypeVar("Message")

# What may follow a header. Anything else on the wire is garbage, not a type to guess.
DTYPES: dict[str, Any] = {name: np.dtype(name) for name in ("<i4", "<i8", "<u8", "<f4")}


class Wire(msgspec.Struct, tag=True, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every message: strict, immutable, tagged by its class name."""


class WireError(Exception):
    """Bytes that are not a message of the expected union."""


class Codec(Generic[Message]):
    """Encodes and decodes one union of `shared.messages` types."""

    def __init__(self, union: Any) -> None:
        self._arrays: list[np.ndarray] = []
        self._frames: Sequence[bytes | memoryview] = ()
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._place)
        self._decoder = msgspec.msgpack.Decoder(union, dec_hook=self._pick)

    def encode(self, message: Message) -> list[bytes | memoryview]:
        self._arrays = []
        header = self._encoder.encode(message)
        return [header, *(array.data.cast("B") for array in self._arrays)]

    def decode(self, frames: Sequence[bytes | memoryview]) -> Message:
        """Arrays are read-only views of the frames (which they keep alive).

        Raises:
            WireError: not a message of this union, or its frames do not fit its header.
        """
        if not frames:
            raise WireError("an empty message")
        self._frames = frames[1:]
        try:
            message: Message = self._decoder.decode(memoryview(frames[0]))
        except (msgspec.DecodeError, ValueError, TypeError, IndexError) as exc:
            raise WireError(f"undecodable message: {exc}") from exc
        finally:
            self._frames = ()
        return message

    def _place(self, value: Any) -> tuple[int, str]:
        if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.str not in DTYPES:
            raise TypeError(f"cannot send a {type(value).__name__}")
        self._arrays.append(np.ascontiguousarray(value))
        return len(self._arrays) - 1, value.dtype.str

    def _pick(self, kind: type, value: Any) -> np.ndarray:
        if kind is not np.ndarray:
            raise TypeError(f"cannot receive a {kind.__name__}")
        index, name = value
        if index < 0:
            raise IndexError("a negative frame index")
        dtype: np.dtype[np.int64] = DTYPES[name]
        array: np.ndarray = np.frombuffer(memoryview(self._frames[index]), dtype=dtype)
        if not array.flags.aligned:  # ZeroMQ packs small messages at any address
            array = array.copy()
        array.flags.writeable = False
        return array
