"""Bodies from the wire, within limits of size, time and memory."""

import asyncio

from aiohttp import web

from shared.errors import BadParameter, BodyTimeout, BodyTooLarge, Overloaded, UnsupportedMedia

BODIES_AT_ONCE = 8  # as many of the largest size may be arriving; all others are much smaller


class BodyReader:
    """A body that is still arriving holds only the bytes that have come, and no other place."""

    def __init__(self, max_bytes: int, timeout_s: float) -> None:
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._held = 0  # bytes of all bodies that are arriving

    async def read(self, http: web.Request) -> bytes:
        """The body of a JSON request.

        Raises:
            UnsupportedMedia: it is compressed, or not JSON.
            BodyTooLarge, BadParameter: it is too large, broken or too slow.
            Overloaded: too many bytes are arriving at once.
        """
        if http.headers.get("Content-Encoding", "identity") != "identity":
            raise UnsupportedMedia("compressed bodies are not accepted")
        if http.content_type != "application/json":
            raise UnsupportedMedia("the body must be application/json")
        if http.content_length is not None and http.content_length > self._max_bytes:
            raise self._too_large()
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._timeout_s):
                while piece := await http.content.readany():
                    size += len(piece)
                    self._held += len(piece)
                    pieces.append(piece)
                    if size > self._max_bytes:
                        raise self._too_large()
                    if self._held > BODIES_AT_ONCE * self._max_bytes:
                        raise Overloaded("too many large bodies are arriving; try again")
        except TimeoutError as exc:
            raise BodyTimeout("the body did not arrive in time") from exc
        except web.RequestPayloadError as exc:
            raise BadParameter("the body could not be read") from exc
        finally:
            self._held -= size
        return b"".join(pieces)

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body is larger than {self._max_bytes >> 20} MiB")
