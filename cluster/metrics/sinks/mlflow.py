"""MLflow. `MLFLOW_TRACKING_URI` and `MLFLOW_EXPERIMENT_NAME` say where; or else `mlflow.db` beside the run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence

from cluster.metrics.sinks import Followed, Sink
from cluster.metrics.tracker import About, Tracker, Update, masked, without

STATUS = {"done": "FINISHED", "stopped": "KILLED", "crashed": "FAILED"}
PARAMS, METRICS = 100, 1000  # how many fit into one request


def missing() -> str:
    return without("mlflow", "mlflow-skinny")


def make(run: Followed) -> Sink:
    return Tracker("mlflow", run)


class Client:
    """What runs in the tracker's process."""

    def __init__(self, about: About) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Param

        address = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{about.folder.parent / 'mlflow.db'}"
        self._client = MlflowClient(tracking_uri=address)
        if about.run:
            self._client.update_run(about.run, status="RUNNING")
        else:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "cairn")
            found = self._client.get_experiment_by_name(name)
            experiment = found.experiment_id if found else self._client.create_experiment(name)
            about.remember(self._client.create_run(experiment, run_name=about.name, tags=about.tags).info.run_id)
        known = self._client.get_run(about.run).data.params  # they cannot change: a run has those that it started with
        params = [Param(key, _text(value)) for key, value in about.config.items() if key not in known]
        for i in range(0, len(params), PARAMS):
            self._client.log_batch(about.run, params=params[i : i + PARAMS])
        self._run, self.told = about.run, f"run {about.run} in {masked(address)}"

    def log(self, updates: Sequence[Update]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(re.sub(r"[^\w.\- /]", "_", key), value, int(update["time"] * 1000), update["env_steps"])
            for update in updates
            for key, value in update["numbers"].items()
        ]
        for i in range(0, len(metrics), METRICS):
            self._client.log_batch(self._run, metrics=metrics[i : i + METRICS])

    def end(self, state: str) -> None:
        self._client.set_terminated(self._run, STATUS[state])


def _text(value: object) -> str:
    """A value as MLflow takes it: a text that is not empty."""
    return value if isinstance(value, str) and value else json.dumps(value, default=str)
