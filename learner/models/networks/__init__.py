"""Networks: from observations to features. One module each, found by name; `learner/models/policy.py` says what one is.

`policy.network=NAME` chooses the module.
"""

from __future__ import annotations

from typing import Any

from learner.room import Room

NETWORKS = Room[Any](__name__, "Network")
names, network = NETWORKS.names, NETWORKS.get
