"""What this model cannot see in a tool's result, named to it: a refusal would end the session."""

WORDS = {
    "image": "an image",
    "image_url": "an image",
    "input_image": "an image",
    "input_audio": "a sound",
    "document": "a document",
    "file": "a file",
    "input_file": "a file",
    "tool_reference": "a tool",
}


def unseen(kind: str, name: str | None = None) -> str:
    """`kind` is the type of the part, `name` what the client calls it."""
    what = WORDS.get(kind, kind)
    called = f" ({name})" if name else ""
    return f"[{what}{called}, which this model cannot see]"
