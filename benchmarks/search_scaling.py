"""search_scaling: novelty search on Ray with more evaluators.

    2_workers        two evaluators on two cores against one, in the compiled simulator of the house
    16_with_latency  sixteen evaluators whose environment takes 100 ms a batch, against sixteen times one, calculated

Rates cover the time in which all evaluators run: sixteen processes take half a minute to start on two cores.
Limit: the controller, which needs 3 ms of processor time for a batch of 128 policies.
"""

from __future__ import annotations

from typing import Any

from benchmarks.measure import OWN, Case, Options, OursFailed, PeerFailed, Report, compare, run_peer
from benchmarks.peers.search_evaluators import OFFSPRING

CASES = ("2_workers", "16_with_latency")
QUICK_SECONDS = 120.0
LATENCY_S = 0.1
TIMEOUT_S = 300.0


class Players:
    """Searches of one case, each in its own process."""

    def __init__(self, latency_s: float, generations: int) -> None:
        self.latency_s, self.generations = latency_s, generations

    def run(self, players: int) -> dict[str, Any]:
        return run_peer(OWN, "search_evaluators", [str(players), str(self.latency_s), str(self.generations)], TIMEOUT_S)

    def ours(self, players: int) -> float:
        try:
            answer = self.run(players)
        except PeerFailed as reason:
            raise OursFailed(str(reason)) from None
        return float(answer["evaluations"])


def run(options: Options) -> Report:
    report = Report()
    if options.wants("2_workers"):
        two = Players(0.0, 400 if options.quick else 800)

        def one() -> float:
            return float(two.run(1)["evaluations"])

        case = Case("search_scaling", "2_workers", "evaluations", frozenset({"one_worker"}))
        report.add(compare(case, lambda: two.ours(2), {"one_worker": one}, options))
    if options.wants("16_with_latency"):
        many = Players(LATENCY_S, 1500 if options.quick else 4000)
        case = Case("search_scaling", "16_with_latency", "evaluations", frozenset({"ideal"}))
        ideal = 16 * OFFSPRING / LATENCY_S
        report.add(compare(case, lambda: many.ours(16), {"ideal": lambda: ideal}, options))
    return report
