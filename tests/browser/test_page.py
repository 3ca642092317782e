"""The page in a real Chromium: what a person sees, can reach, and must never be harmed by."""

import asyncio
from typing import Any

import pytest
from playwright.async_api import Page, expect

from shared.messages import DraftRecord, DraftSpan
from shared.tokenizer import Tokenizer
from tests.browser.conftest import OpenPage
from tests.browser.contrast import TOO_FAINT
from tests.e2e.conftest import Server
from tests.gateway.conftest import Serve
from tests.scripted_engine import Script, Turn, say_text

pytestmark = pytest.mark.browser

FILE = "def area(w, h):\n    return w * h\n"
ASKING = [{"role": "user", "content": f"Repeat:\n{FILE}"}]
HOSTILE = (
    "</script><img src=x onerror=hacked=1><b>bold</b>\u202eright\x1b[31m\x07 \u05d0\u05d1 &amp;"
)
KINDS = ("prompt", "tool", "derived", "predicted", "output", "session", "lookup", "neural")


def span(start: int, stop: int, kind: Any, position: int | None, **fields: Any) -> DraftSpan:
    """A round whose drafts were all accepted."""
    drafted = stop - start - 1
    values = {"neural": 0, "drafted": drafted, "accepted": drafted, "declined": None} | fields
    return DraftSpan(start=start, stop=stop, kind=kind, position=position, match_length=4, **values)


def copying(tokenizer: Tokenizer, end: asyncio.Event | None = None) -> Script:
    """Two rounds that copy the file out of the prompt, and a last one out of the output."""
    ids = tokenizer.encode_text(FILE).tolist()
    half, length = len(ids) // 2, len(ids)

    async def script(turn: Turn) -> None:
        prompt = turn.generate.prompt_ids.tolist()
        at = next(i for i in range(len(prompt)) if prompt[i : i + length] == ids)
        spans = (
            span(1, half, "prompt", at + 1),
            span(half, length, "prompt", at + half),
            span(length, length + 6, "output", 0),
        )
        turn.drafts = DraftRecord(spans=spans, dropped=0)
        await turn.tokens(ids[:1])
        await turn.tokens(ids[1:half], copied=half - 2)
        await turn.tokens(ids[half:], copied=length - half - 1)
        if end is not None:
            await end.wait()
        await turn.tokens([*ids[:5], 33], copied=5)
        await turn.finish("length")

    return script


async def every_kind(turn: Turn) -> None:
    """A round out of each kind of source."""
    spans = tuple(
        span(4 * i, 4 * i + 4, kind, 0, neural=3 if kind in ("lookup", "neural") else 0)
        for i, kind in enumerate(KINDS)
    )
    turn.drafts = DraftRecord(spans=spans, dropped=0)
    await turn.tokens([70] * (4 * len(KINDS) + 3), copied=20)
    await turn.finish("length")


async def test_a_copying_request_is_coloured_and_its_source_lit(
    serve: Serve, tokenizer: Tokenizer, open_page: OpenPage
) -> None:
    async with serve(copying(tokenizer)) as served:
        await served.chat(messages=ASKING)
        async with open_page(served.url) as page:
            first = page.locator("#output .seg.prompt").first
            await first.hover()
            await expect(page.locator("#told")).to_contain_text("copied from prompt, position")
            lit = page.locator("#source mark.chosen")
            assert await lit.text_content() == await first.text_content()
            await expect(page.locator("#source")).to_contain_text("Repeat:")
            await page.locator("#output .seg.output").hover()
            await expect(page.locator("#source-title")).to_have_text("Copied from: its own output")
            await expect(page.locator("#legend")).to_contain_text("prompt 30 (77 %)")
            await expect(page.locator("#services li")).to_have_text(
                ["gateway", "engine", "indexer"]
            )


async def test_a_place_that_was_copied_twice_is_lit_for_both(
    serve: Serve, tokenizer: Tokenizer, open_page: OpenPage
) -> None:
    ids = tokenizer.encode_text(FILE).tolist()

    async def script(turn: Turn) -> None:
        prompt = turn.generate.prompt_ids.tolist()
        at = next(i for i in range(len(prompt)) if prompt[i : i + len(ids)] == ids)
        spans = (span(1, 9, "prompt", at + 1), span(9, 15, "prompt", at + 2))
        turn.drafts = DraftRecord(spans=spans, dropped=0)
        await turn.tokens([ids[0], *ids[1:9], *ids[2:8]])
        await turn.finish("length")

    async with serve(script) as served:
        await served.chat(messages=ASKING)
        async with open_page(served.url) as page:
            for i_copy in range(2):
                copied = page.locator("#output .seg.prompt").nth(i_copy)
                await copied.hover()
                lit = await page.locator("#source mark.chosen").all_text_contents()
                assert "".join(lit) == await copied.text_content()


async def test_a_running_request_grows_before_ones_eyes(
    serve: Serve, tokenizer: Tokenizer, open_page: OpenPage
) -> None:
    end = asyncio.Event()
    async with serve(copying(tokenizer, end)) as served, open_page(served.url) as page:
        await expect(page.locator("#empty")).to_be_visible()
        asking = asyncio.create_task(served.chat(messages=ASKING))
        await expect(page.locator("#list b")).to_have_text(["running"])
        await expect(page.locator("#output")).to_have_text(FILE)
        await expect(page.locator("#output .seg")).to_have_class(["seg copied"] * 2)
        end.set()
        await asking
        await expect(page.locator("#output .seg")).to_have_class(
            ["seg prompt chosen", "seg prompt", "seg output"]
        )
        await expect(page.locator("#list b")).to_have_text(["length"])


async def test_it_follows_the_newest_until_somebody_chooses(
    serve: Serve, tokenizer: Tokenizer, open_page: OpenPage
) -> None:
    async with serve(copying(tokenizer)) as served, open_page(served.url) as page:
        await served.chat(messages=ASKING)
        await served.chat(messages=[*ASKING, {"role": "user", "content": f"Again:\n{FILE}"}])
        await expect(page.locator("#list button").first).to_have_attribute("aria-current", "true")
        await expect(page.locator("#source")).to_contain_text("Again:")
        await page.locator("#list button").last.click()
        await expect(page.locator("#source")).not_to_contain_text("Again:")
        await expect(page.locator("#follow")).not_to_be_checked()


async def test_hostile_text_is_shown_and_does_nothing(
    serve: Serve, tokenizer: Tokenizer, open_page: OpenPage
) -> None:
    headers = {"User-Agent": "<b>agent</b>"}
    body = {"messages": [{"role": "user", "content": HOSTILE}]}
    async with serve(say_text(tokenizer, HOSTILE)) as served, open_page(served.url) as page:
        url = f"{served.url}/v1/chat/completions"
        async with served.http.post(url, json=body, headers=headers) as answer:
            assert answer.status == 200
        for pane in ("#output", "#source"):
            await expect(page.locator(pane)).to_contain_text("</script><img src=x onerror")
            await expect(page.locator(pane)).to_contain_text("⟨U+202E⟩right␛[31m␇ אב &amp;")
        await expect(page.locator("#list")).to_contain_text("<b>agent</b>")
        assert await page.locator("pre b, pre img, #list small b").count() == 0
        assert await page.evaluate("typeof hacked") == "undefined"


async def test_one_can_talk_to_the_model(
    serve: Serve, tokenizer: Tokenizer, open_page: OpenPage
) -> None:
    async with (
        serve(say_text(tokenizer, "Apples & <pears>.")) as served,
        open_page(served.url) as page,
    ):
        await page.fill("#say", "Name <two> fruits")
        await page.press("#say", "Control+Enter")
        await expect(page.locator("#talk .me")).to_have_text("Name <two> fruits")
        await expect(page.locator("#talk div:not(.me)")).to_have_text("Apples & <pears>.")
        await expect(page.locator("#talk p")).to_contain_text("nothing was copied")
        await expect(page.locator("#send")).to_be_enabled()
        await page.fill("#say", "More")
        await page.click("#send")
        await expect(page.locator("#talk div")).to_have_count(4)
        # the second turn has the first before it
        await served.engine.wait_for(lambda: len(served.engine.generates) == 2)
    prompt = tokenizer.decode(served.engine.generates[1].prompt_ids)
    assert "Name <two> fruits" in prompt
    assert "Apples & <pears>." in prompt


async def test_a_refusal_is_said_in_the_servers_words(
    serve: Serve, tokenizer: Tokenizer, open_page: OpenPage
) -> None:
    async with (
        serve(say_text(tokenizer, "x"), engine={"max_context": 40}) as served,
        open_page(served.url, loud=True) as page,
    ):
        await page.fill("#say", "many words " * 100)
        await page.click("#send")
        await expect(page.locator("#talk p")).to_contain_text("maximum context length is 40")


async def test_the_key_is_asked_for_and_kept_for_the_tab(
    serve: Serve, tokenizer: Tokenizer, open_page: OpenPage
) -> None:
    async with (
        serve(say_text(tokenizer, "hello"), api_key="s3cret") as served,
        open_page(served.url, loud=True) as page,
    ):
        await expect(page.locator("#ask")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator("#ask")).to_be_visible()
        for key in ("wrong", "s3cret"):
            await page.fill("#key", key)
            await page.press("#key", "Enter")
        await expect(page.locator("#model")).to_have_text("tiny")
        await page.reload()
        await expect(page.locator("#model")).to_have_text("tiny")
        await expect(page.locator("#ask")).to_be_hidden()
        stored = await page.evaluate("[JSON.stringify(sessionStorage), localStorage.length]")
        assert stored == ['{"ninfer-key":"s3cret"}', 0]
        assert "s3cret" not in page.url


async def test_a_dead_engine_is_said(
    serve: Serve, tokenizer: Tokenizer, open_page: OpenPage
) -> None:
    async with serve(say_text(tokenizer, "x")) as served, open_page(served.url) as page:
        await expect(page.locator("#services .down")).to_have_count(0)
        await served.engine.crash()
        await expect(page.locator("#services .down")).to_have_text(["engine is down"])


async def test_a_lost_server_is_said_and_found_again(
    serve: Serve, tokenizer: Tokenizer, open_page: OpenPage
) -> None:
    async with (
        serve(say_text(tokenizer, "x")) as served,
        open_page(served.url, loud=True) as page,
    ):
        await page.route("**/ninfer/live*", lambda route: route.abort())
        await page.reload()
        await expect(page.locator("#trouble")).to_contain_text("Trying again")
        await page.unroute("**/ninfer/live*")
        await expect(page.locator("#model")).to_have_text("tiny")
        await expect(page.locator("#trouble")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_has_enough_contrast(
    serve: Serve, open_page: OpenPage, scheme: str
) -> None:
    async with serve(every_kind) as served:
        await served.chat(messages=ASKING)
        async with open_page(served.url, color_scheme=scheme) as page:
            for kind in KINDS:
                await expect(page.locator(f"#output .{kind}")).to_have_count(1)
            await page.fill("#say", "typed")
            measured = await page.evaluate(TOO_FAINT)
    assert measured["found"] == []
    assert measured["seen"] > 40


async def test_everything_can_be_reached_with_the_keyboard(
    serve: Serve, tokenizer: Tokenizer, open_page: OpenPage
) -> None:
    async with serve(copying(tokenizer)) as served:
        await served.chat(messages=ASKING)
        async with open_page(served.url) as page:
            await expect(page.locator("#output .seg")).to_have_count(3)
            reached = [await focused(page) for _ in range(14)]
            assert reached[0] == "a.skip"
            wanted = {"textarea#say", "button#send", "button#example", "button.done"}
            wanted |= {"input#follow", "pre#output", "pre#source", "select#sources"}
            assert wanted <= set(reached)
            await page.focus("#output")
            texts = []
            for _ in range(3):
                await page.keyboard.press("ArrowRight")
                texts.append(await page.locator(".seg.chosen").text_content())
            assert texts == await page.locator("#output .seg").all_text_contents()
            await expect(page.locator("#told")).to_contain_text("its own output")
            await page.keyboard.press("Home")
            await expect(page.locator("#told")).to_contain_text("copied from prompt")


async def focused(page: Page) -> str:
    """What the next Tab reaches; it must be seen to have the focus."""
    await page.keyboard.press("Tab")
    name, outline = await page.evaluate(
        """() => {
          const at = document.activeElement;
          const name = at.tagName.toLowerCase() + (at.id ? "#" + at.id : "." + at.className);
          return [name, parseFloat(getComputedStyle(at).outlineWidth)];
        }"""
    )
    assert outline >= 2, name
    found: str = name
    return found


@pytest.mark.parametrize("width", [360, 800, 1440])
async def test_nothing_is_wider_than_the_window(
    serve: Serve, open_page: OpenPage, width: int
) -> None:
    async with serve(every_kind) as served:
        await served.chat(messages=[{"role": "user", "content": "x" * 300}])
        async with open_page(served.url, viewport={"width": width, "height": 800}) as page:
            await expect(page.locator("#output .prompt")).to_have_count(1)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_the_example_copies_with_the_demo_model(
    demo_server: Server, open_page: OpenPage
) -> None:
    async with open_page(f"http://127.0.0.1:{demo_server.port}") as page:
        await page.click("#example")
        await page.click("#send")
        await expect(page.locator("#send")).to_be_enabled(timeout=120_000)
        await expect(page.locator("#talk p")).to_contain_text("drafted tokens kept")
        await expect(page.locator("#output .seg.prompt").nth(2)).to_be_visible()
        copied = page.locator("#output .seg.prompt")
        for i_copy in range(3):
            await copied.nth(i_copy).hover()
            lit = page.locator("#source mark.chosen")
            assert "".join(await lit.all_text_contents()) == await copied.nth(i_copy).text_content()
        said = "".join(await page.locator("#talk div:not(.me)").all_text_contents())
        shown = await page.locator("#output").text_content()
        assert (shown or "").removesuffix("<|im_end|>") == said
