"""`python -m envs.native`: compiles every engine before it is needed, as `make setup` does.

Each world is played for a step and drawn once, so that what is compiled is what play needs. Machine code that is there
already is only loaded.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from typing import Any

import numpy as np

from envs import compiler, registry

THIRD_PARTY = ("gym", "procgen", "metaworld", "control")  # families of worlds that others compiled


def play(env_ids: list[str]) -> None:
    """Play worlds of one family, from each source of episodes that it has; then what else the family compiles."""
    for env_id in env_ids:
        module, _ = registry.resolve(env_id)
        sources: list[dict[str, Any]] = [{}]
        if "levels" in module.Config.model_fields:
            sources.append({"levels": "native"})
        for options in sources:
            env = registry.make(env_id, 2, **options)
            env.begin()
            env.advance(np.stack([env.single_action_space.sample() for _ in range(2)]))
            try:
                env.frame(0)
            except LookupError:  # a world that draws nothing
                continue
    if further := getattr(module, "compile_further", None):
        further()


def main() -> None:
    """One process a family."""
    began = time.monotonic()
    families = [list(ids) for _, ids in groupby(registry.ids(), key=lambda env_id: env_id.partition("/")[0])]
    with ProcessPoolExecutor() as pool:
        list(pool.map(play, [ids for ids in families if ids[0].partition("/")[0] not in THIRD_PARTY]))
    print(f"compiled engines are ready in {compiler.folder()}, after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
