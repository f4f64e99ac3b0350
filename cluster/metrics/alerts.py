"""What is worth waking somebody for, as rules of Prometheus: data, of which docker/alerts.yaml and the docs are made.

Queries name series by `series`, which knows what a metric of the table is called once it has gone through Ray.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cluster.metrics.exporting import GROWN_S, PREFIX
from cluster.metrics.table import RAY, TABLE

QUIET_S = 900
"""Without an update of the learner or a sign of life for so long, something is wrong: beyond `learner.timeout_s`."""
MEMORY = "6h"
"""How long a run that vanished is remembered, and how far back its return is compared."""
SOLVED = 0.9
"""Success rate from which nobody expects more."""
RESTARTS = 5
"""Restarts in an hour that are too many."""
BUDGET = 0.8
"""Share of a cap that is worth a word."""
ENTROPY, KL, SPREAD = 0.01, 0.1, 1.0
"""Language models as policies: least entropy in nats, and most KL divergence and spread of ratios in an update. The
clip range of ratios is about 0.2."""
VALID, REPEATED = 0.5, 0.3
"""Least share of written answers with an action, and most share of repeated tokens."""


def series(name: str, selector: str = "") -> str:
    """A metric of the table in PromQL; `selector` is what stands in braces. The LLM service may be scraped itself."""
    metric = next(metric for metric in (*TABLE, *RAY) if metric.name == name)
    if metric.role != "llm":
        return f"{PREFIX}{name}{{{selector}}}" if selector else PREFIX + name
    rest = f",{selector}" if selector else ""
    return f'{{__name__=~"({PREFIX})?{name}"{rest}}}'


@dataclass(frozen=True)
class Alert:
    """One rule."""

    name: str
    query: str  # true while it returns anything
    wait: str  # it must be true for so long
    severity: Literal["critical", "warning"]
    summary: str  # what is wrong, one sentence with the run's name as `{{ $labels.run }}`
    action: str  # what to do


def _by_run(query: str, how: str = "max") -> str:
    return f"{how} by (run) ({query})"


def _last(name: str) -> str:
    """The largest of the last values of a run's attempts, those that have vanished included."""
    return _by_run(f"last_over_time({series(name)}[{MEMORY}])")


_TRAINS = f"{_by_run(series('cairn_training'))} == 1"
_SPEAKS = f"{_TRAINS} and on (run) {_by_run(series('cairn_learner_tokens_total'))} > 0"
"""It trains a language model: no other learner counts tokens."""
_RETURN = f"avg_over_time({series('cairn_episodic_return')}[1h]"

ALERTS = (
    Alert(
        "CairnRunGone",
        f"time() - {_last('cairn_alive_time_seconds')} > {QUIET_S} and on (run) {_last('cairn_alive_time_seconds')} - "
        f"on (run) {_last('cairn_start_time_seconds')} > {GROWN_S:.0f} unless on (run) "
        f"{_last('cairn_end_time_seconds')} > on (run) {_last('cairn_start_time_seconds')}",
        "0m",
        "critical",
        "Run {{ $labels.run }} vanished 15 minutes ago without having ended, and nothing has resumed it.",
        "'launch.py status RUN' says what its folder knows; error.txt, the queue or the kernel's log say why. Continue "
        "it with 'launch.py resume RUN'. A signal is not an end: its sender is expected to restart the run.",
    ),
    Alert(
        "CairnNoLearnerStep",
        f"time() - {_by_run(series('cairn_last_update_time_seconds'))} > {QUIET_S} and on (run) "
        f"{_by_run(series('cairn_advancing'))} == 1",
        "1m",
        "critical",
        "Run {{ $labels.run }} has stalled: no update, and no row of a search or a fit, for 15 minutes.",
        "Look at 'launch.py status RUN' and 'logs RUN': are actors alive, does an update hang, is a language model "
        "away? If updates of this run take longer than that, raise QUIET_S in cluster/metrics/alerts.py.",
    ),
    Alert(
        "CairnNotFinite",
        f"{_by_run(series('cairn_skipped_steps'))} > 0 and on (run) {_TRAINS}",
        "10m",
        "critical",
        "Run {{ $labels.run }} skips gradient steps: gradients are NaN or infinite.",
        "Look at losses in its report: a large learner.learning_rate, rewards or observations that are not finite. If "
        "all steps of an update are skipped, the run ends.",
    ),
    Alert(
        "CairnLearnsNothing",
        f"{_by_run(_RETURN + ')')} <= on (run) {_by_run(_RETURN + f' offset {MEMORY})')} and on (run) "
        f"{_by_run(series('cairn_success_rate'))} < {SOLVED} and on (run) {_TRAINS}",
        "1h",
        "warning",
        "The return of run {{ $labels.run }} is no better than 6 hours ago.",
        "Compare entropy, losses and success by kind of task in its report. If it has learned all it can, stop it: "
        "'launch.py stop RUN' keeps everything.",
    ),
    Alert(
        "CairnPolicyLag",
        f"{_by_run(series('cairn_policy_lag_max'))} > on (run) {_by_run(series('cairn_policy_lag_limit'))}"
        f" and on (run) {_TRAINS}",
        "10m",
        "warning",
        "Run {{ $labels.run }} makes chunks that are too old to learn from.",
        "They are dropped. The learner is slower than its actors: less actors.n, actors.envs or actors.ahead, more "
        "learner.n, or a larger learner.ppo.max_lag.",
    ),
    Alert(
        "CairnEntropyLow",
        f"{_by_run(series('cairn_policy_entropy'))} < {ENTROPY} and on (run) {_SPEAKS}",
        "10m",
        "warning",
        "The language model of run {{ $labels.run }} hardly varies any more: its entropy is below 0.01 nats.",
        "It no longer explores, and what it does wrong stays. Raise learner.ppo.entropy_coefficient, lower "
        "learner.learning_rate or learner.ppo.epochs, and begin again from an earlier checkpoint.",
    ),
    Alert(
        "CairnKLHigh",
        f"{_by_run(series('cairn_policy_kl'))} > {KL} and on (run) {_SPEAKS}",
        "10m",
        "warning",
        "Updates move the language model of run {{ $labels.run }} far: their KL divergence is above 0.1 nats.",
        "Large updates destroy what a model knew. Lower learner.learning_rate or learner.ppo.epochs, or set "
        "learner.ppo.target_kl or learner.ppo.reference_kl.",
    ),
    Alert(
        "CairnRatioSpread",
        f"{_by_run(series('cairn_ratio_spread'))} > {SPREAD} and on (run) {_SPEAKS}",
        "10m",
        "warning",
        "Probability ratios of run {{ $labels.run }} are far from 1: a few steps or tokens decide its updates.",
        "Long answers multiply the ratios of their tokens: learner.ppo.ratio=token clips each one. Otherwise fewer "
        "learner.ppo.epochs, a lower learner.learning_rate, or less actors.ahead.",
    ),
    Alert(
        "CairnAnswersInvalid",
        f"{_by_run(series('cairn_valid_answers'))} < {VALID} and on (run) {_SPEAKS}",
        "10m",
        "warning",
        "Less than half of what run {{ $labels.run }} writes names an action: the other actions are random.",
        "Read stages/evaluate/trajectories.jsonl. Begin with a clone (method=cloning), raise policy.lm.answer_tokens "
        "if answers are cut, or keep the policy close to its beginning with learner.ppo.reference_kl.",
    ),
    Alert(
        "CairnAnswersRepeat",
        f"{_by_run(series('cairn_repeated_tokens'))} > {REPEATED} and on (run) {_SPEAKS}",
        "10m",
        "warning",
        "The language model of run {{ $labels.run }} repeats itself: more than 30 % of its tokens.",
        "This is how writing collapses. Lower policy.lm.answer_tokens, raise learner.ppo.reference_kl, and begin again "
        "from an earlier checkpoint.",
    ),
    Alert(
        "CairnActorsMissing",
        f"{_by_run(series('cairn_actors_alive'))} < on (run) {_by_run(series('cairn_actors_wanted'))}",
        "10m",
        "warning",
        "Run {{ $labels.run }} has had fewer actors than it wants for 10 minutes.",
        "status.json names those in quarantine, run.log the first traceback; on a cluster, a node may be missing.",
    ),
    Alert(
        "CairnRestarts",
        f"{_by_run('increase(' + series('cairn_actor_restarts_total') + '[1h])', 'sum')} + on (run) "
        f"{_by_run('increase(' + series('cairn_learner_restarts_total') + '[1h])', 'sum')} > {RESTARTS}",
        "0m",
        "warning",
        "Roles of run {{ $labels.run }} die: more than 5 restarts in an hour.",
        "run.log has each cause. Often memory: look at ray_node_mem_used and the kernel's log of the node.",
    ),
    Alert(
        "CairnCheckpointOld",
        f"time() - {_by_run(series('cairn_checkpoint_time_seconds'))} > on (run) 2 * "
        f"{_by_run(series('cairn_checkpoint_period_seconds'))} and on (run) {_TRAINS}",
        "1m",
        "warning",
        "The last checkpoint of run {{ $labels.run }} is older than twice its period.",
        "A death now costs more than planned. A checkpoint follows an update, so updates may take long (raise "
        "run.checkpoint_every_s above that); or the disk is slow or full: see df, and the panel Checkpoint duration.",
    ),
    Alert(
        "CairnBudget",
        f"{_by_run(series('cairn_llm_budget_share'))} >= {BUDGET}",
        "0m",
        "warning",
        "Language models of {{ $labels.run }} have used 80 % of a cap.",
        "At the cap no call is sent, and a run stops and can be resumed: raise llm.limits, or let it come to that. "
        "'launch.py llm cost' says what the money went to.",
    ),
    Alert(
        "CairnBreakerOpen",
        f"{_by_run(series('cairn_llm_breaker_open'))} == 1",
        "2m",
        "critical",
        "The LLM service of {{ $labels.run }} has stopped calling its model after repeated failures.",
        "Is the provider away, the key wrong, the credit used up? The reason is in answers and in client.health(). It "
        "probes again by itself; answers of durable jobs are late and not lost.",
    ),
)  # fmt: skip
