"""Rules of the house, read from its source."""

import ast
import graphlib
import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from pydantic import BaseModel

from cluster import jobs
from cluster.config.tree import Config, compose, method_module
from cluster.report import panels
from envs import registry
from learner import algorithms, methods, potentials, rewards
from llm_service import backends
from llm_service.settings import LLMConfig

ROOT = Path(__file__).resolve().parents[2]
LAYERS = [["launch"], ["cluster"], ["actors"], ["learner"], ["envs", "llm_service"]]  # from the roof down
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
SOURCES = [ROOT / "launch.py", *(p for room in list(LEVEL)[1:] for p in (ROOT / room).rglob("*.py"))]


def imported(tree):
    """First words of every import, also of those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0] if not node.level else "relative"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down_only(path):
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for name in imported(ast.parse(path.read_text())):
        assert name != "relative", f"{path}: imports are absolute here"
        assert name not in ("tests", "benchmarks", "configs"), f"{path} imports {name}"
        if name in LEVEL and name != room:
            assert LEVEL[name] > LEVEL[room], f"{path}: {room} may not import {name}"


def module(path):
    """The dotted name of a file, a package's of its `__init__.py`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_modules_import_each_other_in_no_circle():
    """Nor by imports inside functions or for types: `from a.b import c` is one of the module a.b.c if it is one."""
    ours = {module(path): path for path in SOURCES}
    arrows = {}
    for name, path in ours.items():
        nodes = list(ast.walk(ast.parse(path.read_text())))
        wanted = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                parts = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted |= {part if part in ours else node.module for part in parts}
        arrows[name] = wanted & set(ours) - {name}
    try:
        graphlib.TopologicalSorter(arrows).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_folders_are_of_a_size_to_read():
    files = Counter(path.parent for path in SOURCES if path.name != "__init__.py")
    assert not {str(folder.relative_to(ROOT)): n for folder, n in files.items() if n > 16}
    entries = [path.name for path in (ROOT / "cluster").iterdir() if path.name != "__pycache__"]
    assert len(entries) <= 12, sorted(entries)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_pickle_on_disk_and_no_evaluation(path):
    """Ray pickles between processes, behind its token; nothing of ours does, and nothing evaluates text."""
    calls = {"eval", "exec", "compile", "__import__"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in calls, f"{path}:{node.lineno} calls {node.func.id}"
    assert not {"pickle", "cloudpickle", "shelve", "marshal", "dill"} & set(imported(ast.parse(path.read_text())))
    text = path.read_text()
    for forbidden in ("allow_pickle=True", "weights_only=False", "yaml.load(", "torch.load(", "torch.save("):
        assert forbidden not in text, f"{path}: {forbidden}"


def test_files_are_of_a_size_to_read():
    long = {str(p.relative_to(ROOT)): n for p in SOURCES if (n := len(p.read_text().splitlines())) > 420}
    assert not long
    assert len((ROOT / "launch.py").read_text().splitlines()) < 150
    assert not [n for n in ast.walk(ast.parse((ROOT / "launch.py").read_text())) if isinstance(n, ast.ClassDef)]


def test_every_room_has_a_table_of_contents():
    for room in list(LEVEL)[1:]:
        document = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text()))
        assert document, room
        for path in (ROOT / room).glob("*.py"):
            assert ast.get_docstring(ast.parse(path.read_text())), path


def test_launchers_and_panels_publish_what_their_folders_say():
    for name in jobs.names():
        published, record = {"render", "submit", "resume"}, getattr(jobs.launcher(name), "RECORD", "")
        if record:
            assert record == f"{name}.json"
            published |= {"status", "cancel", "logs", "about", "forget"}
        assert all(callable(getattr(jobs.launcher(name), function)) for function in published), name
    told = [panel for subject in ("agents", "behaviours") for panel in panels.panels(subject)]
    assert len(told) == len(panels.names())
    assert len({(panel.SUBJECT, panel.ORDER) for panel in told}) == len(told)
    assert all(callable(panel.panel) for panel in told)


def test_no_wheel_is_built():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(settings) == {"tool"}
    assert set(settings["tool"]) == {"ruff", "mypy", "pytest"}


def test_requirements_are_pinned_and_justified():
    extras = [f"requirements-{extra}.txt" for extra in ("mujoco", "pyribs", "trackers")]
    extras.append("envs/procgen/requirements.txt")
    for name in ("requirements.txt", "requirements-dev.txt", *extras):
        for line in (ROOT / name).read_text().splitlines():
            if line.strip() and not line.startswith(("#", "-r")):
                assert re.fullmatch(r"[\w.\[\]-]+==[\w.]+ +# .{8,}", line), line


def parts():
    yield Config
    yield from (field.annotation for field in Config.model_fields.values() if isinstance(field.annotation, type))
    yield from (method_module(name).Config for name in methods.names())
    yield from algorithms.parts().values()
    yield from rewards.parts()
    yield potentials.ShapingConfig
    yield from potentials.ShapingConfig.modules()
    yield from (importlib.import_module(f"envs.{name}").Config for name in registry.families())
    yield from (field.annotation for field in LLMConfig.model_fields.values() if isinstance(field.annotation, type))
    yield from (backends.module(name).Config for name in backends.names())


def test_every_configuration_field_is_documented_where_it_is_declared():
    for part in parts():
        if issubclass(part, BaseModel):
            for name, field in part.model_fields.items():
                assert field.description or (part.__name__ == "Config" and name == "name"), f"{part.__name__}.{name}"


@pytest.mark.parametrize("experiment", sorted(p.stem for p in (ROOT / "configs/experiment").glob("*.yaml")))
def test_every_experiment_composes(experiment):
    assert compose([f"experiment={experiment}"]).experiment == experiment


def test_a_foreign_package_of_our_name_is_refused(tmp_path):
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").write_text("")
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.path.insert(0, {str(tmp_path)!r})\n"
    code += "from pathlib import Path; from cluster.roles.checkout import refuse_foreign_packages\n"
    code += f"refuse_foreign_packages(Path({str(ROOT)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, cwd=tmp_path)
    assert done.returncode != 0
    assert "package envs comes from" in done.stderr
