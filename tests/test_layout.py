"""The shape of the package: which way imports point, what is public, what importing costs."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import algoformer

ROOT = Path(algoformer.__file__).parent

# Each part sees the parts on lower floors; parts of one floor do not see each other.
FLOORS = [
    ["checks", "files", "provenance"],
    ["prompt"],
    ["algorithm"],
    ["task"],
    ["testing", "solvers"],
    ["tasks", "models", "theory", "analysis"],
    ["training", "constructions"],
    ["estimators", "zoo"],
    ["claims", "experiments", "bench"],
    ["report"],
    ["demo", "terminal"],
    ["cli"],
    ["__main__"],
]
FLOOR = {part: i for i, floor in enumerate(FLOORS) for part in floor}


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "algoformer":
            parts = node.module.split(".")[1:]
            yield from [parts[0]] if parts else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("algoformer."))


def test_imports_point_down_only():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        assert part in FLOOR, f"{part} has no floor"
        for other in imports(path):
            other = algoformer._HOME.get(other, other)
            if other != part and other in FLOOR and FLOOR[other] >= FLOOR[part]:
                wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert not wrong, wrong


def test_public_names_are_listed_and_load():
    assert algoformer.__all__ == sorted(algoformer.__all__)
    assert set(algoformer.__all__) == {*algoformer._HOME, *algoformer._MODULES}
    for name in algoformer.__all__:
        assert getattr(algoformer, name) is not None
    for module in algoformer._MODULES:
        names = getattr(import_module(f"algoformer.{module}"), "__all__", [])
        assert list(names) == sorted(names, key=lambda n: (not n.isupper(), not n[0].isupper(), n)), module
    assert set(algoformer.__all__) <= set(dir(algoformer))


def test_public_names_are_in_the_docs():
    page = (Path(__file__).parent.parent / "docs" / "reference.md").read_text()
    missing = [name for name in algoformer.__all__ if f"`{name}`" not in page]
    assert not missing


def run(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout


def test_importing_the_package_and_asking_for_help_load_no_heavy_library():
    heavy = "['torch', 'sklearn', 'scipy', 'matplotlib', 'numpy', 'pandas']"
    for code in (
        "import algoformer",
        "from typer.testing import CliRunner; from algoformer.cli import app; "
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0",
    ):
        assert run("-c", f"{code}; import sys; print([m for m in {heavy} if m in sys.modules])").strip() == "[]"


def test_the_package_is_typed():
    assert (ROOT / "py.typed").exists()


def test_an_experiment_can_be_run_where_nothing_draws():
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('matplotlib', 'typer', 'rich', 'sklearn')))\n"
        "from algoformer.experiments import EXPERIMENTS, load\n"
        "for name in EXPERIMENTS: load(name)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
