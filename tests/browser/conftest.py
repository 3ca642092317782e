"""A real headless Chromium in front of real servers."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright

from tests.browser import installation
from tests.e2e.conftest import demo_server as demo_server
from tests.gateway.conftest import config as config
from tests.gateway.conftest import serve as serve
from tests.gateway.conftest import short_folder as short_folder
from tests.gateway.conftest import tokenizer as tokenizer

# as root it needs the first; the others keep it off a GPU and small /dev/shm
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
WAIT_MS = 20_000


@pytest.fixture(scope="session")
def chromium() -> Path:
    try:
        return installation.install()
    except installation.InstallError as exc:
        pytest.fail(f"no browser, run `make browser`: {exc}", pytrace=False)


@pytest.fixture
async def browser(chromium: Path) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        program = await playwright.chromium.launch(
            executable_path=chromium, env=dict(installation.environment(chromium)), args=FLAGS
        )
        yield program
        await program.close()


OpenPage = Callable[..., "contextlib.AbstractAsyncContextManager[Page]"]


@pytest.fixture
def open_page(browser: Browser) -> OpenPage:
    """Opens a page that may say nothing on its console and ask nobody but its own server."""

    @contextlib.asynccontextmanager
    async def opened(url: str, *, loud: bool = False, **options: Any) -> AsyncIterator[Page]:
        context = await browser.new_context(**options)
        page = await context.new_page()
        page.set_default_timeout(WAIT_MS)
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(url)
        yield page
        assert loud or said == []
        assert [a for a in asked if not a.startswith((url, "data:"))] == []
        await context.close()

    return opened
