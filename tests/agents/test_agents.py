"""Real coding agents against the real gateway, where there is nothing but loopback."""

import pytest

from tests.agents.clients import CLIENTS
from tests.agents.conftest import Open, Ran, Workplace, kill
from tests.agents.scripted_model import SUMMARY
from tests.scripted_engine import Turn

pytestmark = [pytest.mark.agents, pytest.mark.e2e, pytest.mark.timeout(150)]
each = pytest.mark.parametrize("name", CLIENTS)

TASK = "Read limits.py and check.py, and correct the check, please."
FILE = 'NAME = "thing"\nLIMIT = 25\n\n\ndef within(x):\n\treturn x < LIMIT\n'
CODE = 'def check(x):\n\tif "é" in x:\n\t\treturn x  # <old> & {odd}\n\n\treturn None\n'
OLD_CODE = '\tif "é" in x:\n\t\treturn x  # <old> & {odd}'
NEW_CODE = "\tif \"é\" in x and '日本' != x:\n\t\treturn x\t# <new> && {{odd}} \\n </parameter>"
DONE = "The check knows two strings now, and nothing else has changed."
OVERFLOW_WORDS = "Codex ran out of room in the model's context window."


@each
async def test_a_turn_reads_edits_and_answers(name: str, workplace: Open) -> None:
    async with workplace(CLIENTS[name], TASK) as place:
        paths = [place.project / file for file in ("limits.py", "check.py")]
        for path, content in zip(paths, (FILE, CODE), strict=True):
            path.write_text(content)
        client = place.client
        reads = place.model.calls(*map(client.read, paths))
        edit = place.model.calls(client.edit(paths[1], OLD_CODE, NEW_CODE))
        # with both results, a prompt is at step 2
        place.model.steps = [f"I will read both.\n\n{reads}", "", edit, DONE]
        ran = await place.run()
        assert paths[1].read_text() == CODE.replace(OLD_CODE, NEW_CODE), ran.output
        assert paths[0].read_text() == FILE
        assert DONE in ran.output
        assert ran.status == 0
        assert place.log_lines("request_error") == []
        _check_prefixes(place)


def _check_prefixes(place: Workplace) -> None:
    """Each request of the turn holds the one before it and its answer, token by token."""
    first, second, third = place.model.asked
    assert "return x < LIMIT" in second.prompt
    for before, after in ((first, second), (second, third)):
        whole = len(before.prompt_ids) + len(before.answer_ids)
        assert after.cached_tokens == whole
    logged = [line["result"]["prefix_cache_hit_tokens"] for line in place.log_lines("request_done")]
    assert {second.cached_tokens, third.cached_tokens} <= set(logged)


@each
async def test_killing_the_agent_frees_its_row(name: str, workplace: Open) -> None:
    limits = {"max_concurrency": 1, "max_waiting": 0}
    async with workplace(CLIENTS[name], TASK, form="hermes", **limits) as place:
        path = place.project / "limits.py"
        path.write_text(FILE)
        place.model.steps = [place.model.calls(place.client.read(path)), DONE]
        place.model.hangs_at = 1
        process = await place.begin()
        await place.engine.wait_for(lambda: len(place.model.asked) == 2, timeout_s=60)
        hanging = place.engine.generates[-1].request_id
        await kill(process)
        await place.engine.wait_for(lambda: hanging in place.engine.cancels)
        assert (await place.probe()).output == "200\n"
        reasons = [line["result"]["finish_reason"] for line in place.log_lines("request_done")]
        assert reasons[-2:] == ["cancelled", "stop"]


async def run_out_of_context(place: Workplace) -> Ran:
    """Two files are read; with the second, the conversation is longer than the context."""
    files = {"limits.py": 600, "other.py": 150}
    steps = []
    for file, lines in files.items():
        path = place.project / file
        path.write_text(FILE + "".join(f"x{i} = {i * i}\n" for i in range(lines)))
        steps.append(place.model.calls(place.client.read(path)))
    place.model.steps = [*steps, DONE]

    async def shrink(turn: Turn) -> None:
        if len(place.model.asked) == len(files):
            await place.engine.change_context(len(turn.generate.prompt_ids) + 500)

    place.model.on_step = shrink
    ran = await place.run()
    errors = {line["error"]["code"] for line in place.log_lines("request_error")}
    assert errors == {"context_length_exceeded"}
    return ran


@pytest.mark.parametrize("name", ["claude", "opencode", "kilo"])
async def test_an_overflow_makes_the_agent_compact_and_go_on(name: str, workplace: Open) -> None:
    async with workplace(CLIENTS[name], TASK) as place:
        ran = await run_out_of_context(place)
        assert DONE in ran.output
        last = place.model.asked[-1]
        assert SUMMARY in last.prompt
        assert len(last.prompt_ids) < place.engine.max_context


async def test_an_overflow_makes_cline_drop_old_results_and_go_on(workplace: Open) -> None:
    async with workplace(CLIENTS["cline"], TASK) as place:
        ran = await run_out_of_context(place)
        assert DONE in ran.output
        assert ran.status == 0
        longest = max(len(asked.prompt_ids) for asked in place.model.asked)
        assert len(place.model.asked[-1].prompt_ids) < longest


async def test_an_overflow_ends_codex_with_its_own_words(workplace: Open) -> None:
    async with workplace(CLIENTS["codex"], TASK) as place:
        ran = await run_out_of_context(place)
        assert OVERFLOW_WORDS in ran.output
        assert ran.status == 1


async def test_codex_compacts_before_the_context_that_it_knows_is_full(workplace: Open) -> None:
    async with workplace(CLIENTS["codex"], TASK) as place:
        path = place.project / "limits.py"
        path.write_text(FILE + "".join(f"x{i} = {i * i}\n" for i in range(600)))
        reading = place.model.calls(place.client.read(path))
        place.model.steps = [reading, reading, DONE]
        ran = await place.run("--config=model_context_window=18000")
        assert DONE in ran.output
        assert SUMMARY in place.model.asked[-1].prompt
