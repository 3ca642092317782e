"""A tokenizer in place of the model's: one id a character, and a gate to hold a build."""

import threading

import numpy as np

SPECIAL_ID = 0


class CharTokenizer:
    """`gate`: encoding waits until it is set. `busy` is set while it does."""

    special_ids = frozenset({SPECIAL_ID})

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.busy = threading.Event()
        self.encoded: list[str] = []

    def encode_text(self, text: str) -> np.ndarray:
        self.busy.set()
        assert self.gate.wait(10), "the gate was never opened"
        self.encoded.append(text)
        if text == "unencodable":
            raise RuntimeError("the tokenizer refused")
        return np.array([ord(c) for c in text], dtype=np.int32)


def int32(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def listing(*lines: str) -> str:
    return "\n".join(f"{n}: {line}" for n, line in enumerate(lines, 1))
