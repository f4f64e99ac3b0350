"""Ray's head in a job of several nodes, until the job ends it.

    python -m cluster.jobs.slurm.head ADDRESS CPUS DASHBOARD_PORT      DASHBOARD_PORT 0: no dashboard
           RAY_GCS_SERVER_PORT, RAY_AUTH_TOKEN_PATH, RAY_TMPDIR, CAIRN_OBJECT_STORE: from the batch script

It does what `ray start --head --block` does, without Ray's Client server. Nothing needs that extra open port, and on a
busy node, where it starts late, `ray start` would end all of Ray because of it. However this process ends, Ray's
processes end with it. This node has the resource `learner`, which places roles here.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import ray


def main(address: str, cpus: int, dashboard_port: int) -> None:
    """Start Ray on this node, and wait for SIGTERM."""
    if os.environ.get("RAY_AUTH_MODE") != "token":
        sys.exit("RAY_AUTH_MODE is not token: Ray must not listen without one")
    ray.init(
        num_cpus=cpus,
        resources={"learner": 1},
        include_dashboard=dashboard_port > 0,
        dashboard_host="127.0.0.1",
        dashboard_port=dashboard_port or None,
        object_store_memory=int(os.environ.get("CAIRN_OBJECT_STORE", 1_000_000_000)),  # bytes
        log_to_driver=False,
        _node_ip_address=address,
    )
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    print(f"Ray is up on {address}", flush=True)
    ended.wait()
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
