"""The scene along each behaviour: its route, its last places, and eleven moments (`envs/navigation/scene.py`)."""

from __future__ import annotations

import json

from cluster.runs.stage import Outcome
from cluster.stages._shared.lgqd import ANNOTATIONS, BehaviourStage
from learner.behaviours import words


def run(work: BehaviourStage) -> Outcome | None:
    rows, count = list[str](), 0
    for ids, pose in work.trajectories():
        symbols, (routes, last) = work.scene.symbols(pose), words.visited(work.scene, pose)
        for row, number in enumerate(ids.tolist()):
            line = {"id": number, "route": routes[row], "last": sorted(last[row])}
            line |= {"told": words.told(work.scene, symbols, row)}
            rows.append(json.dumps(line | {"moments": work.scene.annotation(symbols, row)}))
        count += len(ids)
        work.progress.line(f"annotate  behaviours {count:,}")
        if work.stop.reason:
            return None
    work.folder.write(work.place / ANNOTATIONS, "".join(f"{row}\n" for row in rows))
    return Outcome({"behaviours": count})
