"""The product's main job, through every process: a streamed answer that copies."""

import json

import openai
import pytest

from tests.e2e.conftest import Server, wait_for
from tests.real.prompts import PROMPTS

pytestmark = [pytest.mark.e2e, pytest.mark.real, pytest.mark.timeout(180)]


def test_a_numbered_tool_result_is_copied_from_its_derived_source(demo_server: Server) -> None:
    client = openai.OpenAI(base_url=demo_server.url, api_key="unused")
    prompt = next(p for p in PROMPTS if p.name == "numbered_code")
    chunks = list(
        client.chat.completions.create(
            model="smollm2-135m",
            messages=prompt.messages,  # type: ignore[arg-type]
            temperature=0,
            max_tokens=60,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text.strip()
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens <= 60
    lines = wait_for(
        lambda: [
            line
            for line in map(json.loads, demo_server.log.read_text().splitlines())
            if line["event"] == "request_done" and line["request"]["request_id"] == chunks[0].id
        ]
    )
    speculative = lines[0]["speculative"]
    assert speculative["ngram_accepted_tokens"] > 0
    assert {source["kind"] for source in speculative["sources"]} & {"derived", "prompt"}
    assert lines[0]["result"]["decode_passes"] < lines[0]["result"]["completion_tokens"]
