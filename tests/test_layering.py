"""Imports point one way, and the shape rules that a machine can check."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SERVICES = ("gateway", "engine", "indexer", "archive")
VAGUE_NAMES = {"utils.py", "common.py", "helpers.py", "misc.py", "manager.py", "base.py"}
# file -> why it reads the environment although it is no config.py
ENVIRONMENT = {
    "services/launch.py": "hands its own environment to the children",
    "services/engine/checkpoint/fetch.py": "finds the user's cache folder",
}


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def offenders(paths: list[Path], forbidden: tuple[str, ...]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in paths
        for name in imports(path)
        if any(name == f or name.startswith(f"{f}.") for f in forbidden)
    ]


def test_shared_needs_neither_torch_nor_a_service() -> None:
    assert offenders(sources("shared"), ("torch", "services", "kernels", "bench")) == []


def test_kernels_need_nothing_of_the_product() -> None:
    assert offenders(sources("kernels"), ("shared", "services", "bench", "zmq")) == []


def test_a_kernel_is_a_folder_of_its_function_its_code_and_its_reference() -> None:
    kernels = [path for path in (ROOT / "kernels").iterdir() if (path / "kernel.py").exists()]
    names = {"__init__.py", "kernel.py", "reference.py"}
    assert kernels
    assert [path for path in kernels if {file.name for file in path.glob("*.py")} != names] == []


def test_the_matching_library_needs_only_numpy_and_the_standard_library() -> None:
    forbidden = ("zmq", "msgspec", "structlog", "tokenizers", "torch")
    assert offenders(sources("shared/matching"), forbidden) == []


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_imports_no_other(service: str) -> None:
    others = tuple(f"services.{other}" for other in SERVICES if other != service)
    assert offenders(sources(f"services/{service}"), (*others, "bench")) == []


def test_only_the_engine_imports_torch() -> None:
    assert (
        offenders(sources("services/gateway", "services/indexer", "services/archive"), ("torch",))
        == []
    )


def test_the_planner_is_pure() -> None:
    planner = [ROOT / "services/engine/planner.py"]
    assert offenders(planner, ("torch", "time", "zmq", "random")) == []


def test_drafting_is_driven_without_torch() -> None:
    nouns = ("ledger", "tally")
    drafting = [*sources("services/engine/drafting")]
    drafting += [ROOT / f"services/engine/{noun}.py" for noun in nouns]
    assert offenders(drafting, ("torch", "zmq")) == []


@pytest.mark.parametrize("service", SERVICES)
def test_each_service_has_the_same_skeleton(service: str) -> None:
    names = {path.name for path in (ROOT / "services" / service).glob("*.py")}
    assert {"__main__.py", "config.py", "loop.py"} <= names


def test_package_files_are_empty() -> None:
    full = [p for p in sources("services", "shared", "bench") if p.name == "__init__.py"]
    assert [str(p) for p in full if p.read_text().strip()] == []


def test_no_file_has_a_vague_name() -> None:
    found = [p for p in sources("services", "shared", "kernels", "bench") if p.name in VAGUE_NAMES]
    assert found == []


def test_torch_cuda_is_called_in_one_file() -> None:
    users = {
        str(path.relative_to(ROOT))
        for path in sources("services", "shared", "bench", "kernels")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr == "cuda"
        and isinstance(node.value, ast.Name)
        and node.value.id == "torch"
    }
    assert users <= {"services/engine/device.py"}


def test_only_config_files_read_the_environment() -> None:
    readers = {
        str(path.relative_to(ROOT))
        for path in sources("services", "shared", "kernels")
        if "os.environ" in path.read_text() or "getenv" in path.read_text()
    }
    assert {r for r in readers if not r.endswith("config.py")} == set(ENVIRONMENT)


def test_messages_hold_only_types() -> None:
    tree = ast.parse((ROOT / "shared/messages.py").read_text())
    allowed = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Assign, ast.Expr)
    assert [type(node).__name__ for node in tree.body if not isinstance(node, allowed)] == []
