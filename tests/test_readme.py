from pathlib import Path

from services.launch import serve_config
from shared import options

ROOT = Path(__file__).parents[1]


def test_the_readme_lists_every_option_as_it_is() -> None:
    assert options.table(serve_config()) in (ROOT / "README.md").read_text()
