"""Which lines a person asked for."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec import UNSET

from services.gateway.log_lines import AnyLine, RequestDone, RequestError, ServerStart
from shared.errors import ConfigError

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True)
class Wanted:
    """Every criterion that is set must hold; server_start lines pass if none is."""

    request: str | None = None  # id, or its end
    client: str | None = None  # part of the User-Agent, in any case
    protocol: str | None = None  # part of its name
    session: str | None = None  # beginning of the session's hash
    errors: bool = False
    slower_s: float | None = None  # took at least that long in all
    since_ms: int | None = None  # wall clock

    def __call__(self, line: AnyLine) -> bool:
        if self.since_ms is not None and line.timestamp_unix_ms < self.since_ms:
            return False
        if isinstance(line, ServerStart):
            return self == Wanted(since_ms=self.since_ms)
        request = line.request
        if self.request is not None and not request.request_id.endswith(self.request):
            return False
        if self.client is not None and self.client.lower() not in (request.client or "").lower():
            return False
        if self.protocol is not None and self.protocol not in (request.protocol or ""):
            return False
        if self.session is not None:
            name = request.draft_session
            if name is UNSET or name is None or not name.startswith(self.session):
                return False
        if self.errors and not isinstance(line, RequestError):
            return False
        if self.slower_s is None:
            return True
        return isinstance(line, RequestDone) and line.timings_seconds.total >= self.slower_s


def since(text: str, now_s: float) -> int:
    """`90s`, `10m`, `2h`, `1d` ago, or an ISO date or time (UTC unless it says otherwise), as
    milliseconds.

    Raises:
        ConfigError: it is none of these.
    """
    ago = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if ago:
        return int(1000 * (now_s - float(ago[1]) * UNITS_S[ago[2]]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as exc:
        raise ConfigError(
            f"--since {text}: use 90s, 10m, 2h, 1d or a date like 2026-01-31"
        ) from exc
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(1000 * moment.timestamp())
