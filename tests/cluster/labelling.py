"""A method of two stages, collect and label, beside ours; as a program, a run of it: `labelling.py WORD...`."""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cluster.config import overrides
from learner import methods

METHOD = """
from typing import Any, Literal

from envs.config import Part
from learner.knowledge.config import LabelConfig
from learner.methods import Stage
from learner.parts import CollectConfig


class Config(Part):
    name: Literal["labelling"] = "labelling"
    collect: CollectConfig = CollectConfig()
    label: LabelConfig = LabelConfig()


def stages(config: Any) -> list[Stage]:
    return [Stage("collect", "collect", config.method.collect.player), Stage("label", "label", "")]


def check(config: Any, spec: Any) -> None:
    pass
"""
FILE = "# @package _global_\nmethod:\n  name: labelling\n  collect:\n    player: random\n"


def put_beside(folder: Path) -> None:
    """Make the method known to this process."""
    (folder / "methods").mkdir()
    (folder / "methods/labelling.py").write_text(METHOD)
    methods.__path__.append(str(folder / "methods"))
    configs = folder / "configs"
    configs.mkdir()
    for path in overrides.CONFIGS.iterdir():
        (configs / path.name).symlink_to(path)
    (configs / "method").unlink()
    (configs / "method").mkdir()
    for path in (overrides.CONFIGS / "method").iterdir():
        (configs / "method" / path.name).symlink_to(path)
    (configs / "method/labelling.yaml").write_text(FILE)
    overrides.CONFIGS = configs


if __name__ == "__main__":
    from cluster import run as controller
    from cluster.config.tree import compose

    with tempfile.TemporaryDirectory() as folder:
        put_beside(Path(folder))
        verb, *words = sys.argv[1:]
        sys.exit(
            controller.resume(Path(words[0]), words[1:], False) if verb == "resume" else controller.run(compose(words))
        )
