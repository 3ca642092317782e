"""What --help shows, and what a shell completes."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from services.engine.checkpoint.cli import main as model_main
from services.launch import serve_config
from services.log.cli import main as log_main
from shared import options
from shared.errors import ConfigError
from shared.options import option


@dataclass(frozen=True)
class Config:
    model: Path = option(help="the folder", group="Model")
    width: int = option(4, "columns, 100% of them", group="Copies")
    wait_s: float = option(1.5, "seconds", group="HTTP")
    cache_mib: int | None = option(None, "memory", group="Model")
    mode: str = option("a", "how", choices=("a", "b"))


def test_help_has_the_options_in_their_sections(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse(Config, ["--help"], prog="try", about="Tries.", examples="examples:\n  try 1")
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert text.startswith("usage: try --model PATH [options]\n")
    model, copies = text.index("\nModel:"), text.index("\nCopies:")
    assert model < text.index("--cache-mib MIB") < copies  # although it is declared later
    assert copies < text.index("--width N") < text.index("--wait-s SECONDS")
    assert "columns, 100% of them (default 4)" in text
    assert text.endswith("examples:\n  try 1\n")


def test_a_section_lasts_until_a_field_opens_another() -> None:
    assert options.groups(Config) == {
        "model": "Model",
        "cache_mib": "Model",
        "mode": "Model",
        "width": "Copies",
        "wait_s": "HTTP",
    }


def test_the_table_names_each_section_once() -> None:
    lines = options.table(Config).split("\n")[2:]
    assert [line for line in lines if line.startswith("| **")] == [
        "| **Model** | | |",
        "| **Copies** | | |",
        "| **HTTP** | | |",
    ]
    assert lines[1] == "| `--model` | `required` | the folder |"


def test_the_server_keeps_the_sections_of_its_services() -> None:
    found = options.groups(serve_config())
    assert found["lm_head_draft"] == "Neural drafter"
    assert found["ngram_session_mib"] == found["ngram_native_sessions"] == "Sessions"
    assert "Options" not in found.values()


def test_an_unknown_option_is_named_before_a_missing_one() -> None:
    with pytest.raises(ConfigError, match="unrecognized arguments: --wdith=5"):
        options.parse(Config, ["--wdith=5"], prog="try")


def test_bash_completes_options_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse(serve_config(), ["--print-completion", "bash"], prog="ninfer-serve")
    assert ended.value.code == 0
    script = capsys.readouterr().out
    assert _completed(script, "ninfer-serve", "--ngram-d") == ["--ngram-draft-tokens"]
    assert _completed(script, "ninfer-serve", "--ngram-policy", "") == ["fixed", "adaptive"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_option(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse(serve_config(), ["--print-completion", shell], prog="ninfer-serve")
    script = capsys.readouterr().out
    flags = options.flags(serve_config()).values()
    assert [f for f in flags if f.removeprefix("--") not in script] == []


def test_commands_complete_their_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    for main, name, command in (
        (model_main, "ninfer-model", "convert"),
        (log_main, "ninfer-log", "summary"),
    ):
        with pytest.raises(SystemExit):
            main(["--print-completion", "bash"])
        script = capsys.readouterr().out
        assert _completed(script, name, command[:3]) == [command]


def _completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    quoted = " ".join(f"'{word}'" for word in words)
    asked = f"""{script}
COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}
function=$(complete -p {words[0]} | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$function {words[0]} '{words[-1]}' '{words[-2]}'
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "-c", asked], capture_output=True, text=True, check=True, timeout=20
    )
    return done.stdout.split()
