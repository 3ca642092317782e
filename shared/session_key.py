"""The public name of a session: its key may hold what a client calls private."""

import hashlib


def public_id(key: bytes) -> str:
    """16 hexadecimal digits, the same for the same key; what logs and the session list show."""
    return hashlib.blake2b(key, digest_size=8).hexdigest()
