"""The table of all metrics that Prometheus gets.

    `TABLE` ──> exporting.py: gauges on Ray        ──> dashboard.py: dashboard, alerts, docs/metrics.md

Names of rows are those that are common in the field: charts/*, losses/*, policy/*, time/*.
"""

from __future__ import annotations

from typing import Any

from llm_service.metrics import LLM, Metric


def _rows(role: str, prefix: str, *rows: tuple[Any, ...]) -> tuple[Metric, ...]:
    return tuple(Metric(f"cairn_{prefix}{name}", role, *rest) for name, *rest in rows)


_HOURLY = "increase({}[1h])"
_AGE = "time() - {}"

CONTROLLER = _rows(
    "controller",
    "",
    ("env_steps", "env_steps", "", "Env steps learned from; decreases when the learner goes back to a checkpoint."),
    ("version", "version", "", "Policy version, one per learner update; in a fit, its gradient step."),
    ("episodes", "episodes", "", "Finished training episodes."),
    ("progress", "progress", "share", "Share of the run's env steps that are done.", "Progress"),
    ("steps_per_second", "charts/SPS", "", "Env steps learned from per second, in the last row.", "Env steps a second"),
    ("success_rate", "charts/success_rate", "share", "Share of the latest training episodes solved.", "Success"),
    ("episodic_return", "charts/episodic_return", "", "Mean undiscounted return of the latest episodes.", "Return"),
    ("policy_lag", "policy/lag_mean", "", "Mean versions between the policy that acted and the one that learned.",
     "Policy lag"),
    ("policy_lag_max", "policy/lag_max", "", "The largest number of such versions in an update.", "Policy lag"),
    ("policy_lag_limit", "lag_limit", "", "Lag beyond which chunks are dropped.", "Policy lag"),
    ("dropped_chunks", "dropped_chunks", "", "Chunks dropped because they were too old.", "Chunks dropped"),
    ("chunks_ready", "chunks_ready", "", "Chunks waiting for the learner.", "Chunks that wait"),
    ("chunk_age_seconds", "chunk_age", "seconds", "How long the oldest chunk has waited.", "Oldest waiting chunk"),
    ("actors_alive", "actors_alive", "", "Actors that work.", "Actors alive and wanted"),
    ("actors_wanted", "actors", "", "Actors that the run asks for.", "Actors alive and wanted"),
    ("actors_quarantined", "actors_quarantined", "", "Actors quarantined after too many deaths.",
     "Actors alive and wanted"),
    ("actor_restarts_total", "restarts", "", "Restarts of actors since the run started.", "Restarts an hour", "",
     _HOURLY),
    ("learner_restarts_total", "learner_restarts", "", "Restarts of the learner since the run started.",
     "Restarts an hour", "", _HOURLY),
    ("resumes_total", "resumes", "", "How often the run was resumed.", "Restarts an hour", "", _HOURLY),
    ("training", "training", "", "1 while the run trains, 0 once it ends or is asked to end."),
    ("advancing", "advancing", "", "1 while it trains, searches or fits; 0 once this ends or a stop is requested."),
    ("last_update_time_seconds", "last_update", "time",
     "When the learner's last update came back; in a search or a fit, when its last row was written.",
     "Since the last update", "", _AGE),
    ("skipped_steps", "losses/skipped", "share",
     "Share of the last update's gradient steps that were skipped, since their gradients were not finite.",
     "Gradient steps skipped"),
    ("policy_entropy", "losses/entropy", "",
     "PPO: mean entropy in nats of the distribution over actions; of one that writes, over the tokens of its answers.",
     "Entropy of the policy"),
    ("policy_kl", "losses/approx_kl", "", "PPO: mean KL divergence in nats of the policies before and in an update.",
     "KL divergence in an update"),
    ("ratio_spread", "losses/ratio_spread", "", "PPO: root mean square distance from 1 of the probability ratio.",
     "Spread of ratios"),
    ("start_time_seconds", "started", "time", "When this attempt at the run began."),
    ("alive_time_seconds", "alive", "time", "The current time, updated while the controller runs."),
    ("end_time_seconds", "ended", "time", "When the run ended by itself or as asked; 0 before."),
    ("checkpoint_time_seconds", "checkpoint_time", "time", "Time of the last checkpoint.", "Checkpoint age",
     "", _AGE),
    ("checkpoint_period_seconds", "checkpoint_period", "seconds", "Time after which the next checkpoint is due.",
     "Checkpoint age"),
    ("checkpoint_save_seconds", "checkpoint_save", "seconds", "Time to write the checkpoint.", "Checkpoint duration"),
)  # fmt: skip

WRITTEN = _rows(
    "controller",
    "",
    ("valid_answers", "policy/valid", "share", "Share of written answers in which an action was found.",
     "Written answers"),
    ("repeated_tokens", "policy/repeated", "share", "Share of written tokens that repeat a run of three in the answer.",
     "Written answers"),
    ("answer_tokens", "policy/answer_tokens", "", "Mean tokens of a written answer.", "Length of written answers"),
)  # fmt: skip
"""Told only where the policy writes its actions (`policy.lm.head=generated`)."""

ACTOR = _rows(
    "actor",
    "actor_",
    ("env_steps_total", "actor/steps", "", "Env steps played.", "Env steps a second, by actor"),
    ("rollouts_total", "actor/rollouts", "", "Chunks made.", "Chunks a second, by actor"),
    ("seconds_total", "actor/seconds/", "seconds",
     "Time by activity: `rollout` steps envs, `goals` may wait for a language model, `shaping` evaluates states, "
     "`idle` waits for weights.",
     "What actors do", "doing"),
    ("episodes_total", "actor/episodes", "", "Episodes played for an evaluation.", "Episodes evaluated, by actor"),
)  # fmt: skip

LEARNER = _rows(
    "learner",
    "learner_",
    ("updates_total", "learner/updates", "", "Updates.", "Updates a second, by rank"),
    ("env_steps_total", "learner/steps", "", "Env steps learned from.", "Env steps learned from per second, by rank"),
    ("seconds_total", "learner/seconds", "seconds", "Time of updates.", "Share of time learning, by rank"),
    ("update_seconds", "learner/update_seconds", "seconds", "How long the last update took.", "Time of an update"),
    ("gradient_norm", "learner/gradient_norm", "", "Mean norm of the last update's gradients.", "Gradient norm"),
)

POLICY = _rows(
    "policy",
    "policy_server_",
    ("states_total", "policy/states", "", "States that the policy server answered.", "States a second"),
    ("batches_total", "policy/batches", "", "Batches in which the policy server computed them.", "Batches a second"),
)


def _computing(role: str, prefix: str, work: str, whose: str) -> tuple[Metric, ...]:
    """What a role tells of a language model and of its GPU, where it has one; `work` is what it does at a time."""
    return _rows(
        role,
        prefix,
        ("tokens_total", f"{role}/tokens", "", "Tokens that a language model computed, without padding.",
         f"Tokens a second, {whose}"),
        ("tokens_per_second", f"{role}/tokens_per_second", "", f"The same a second, in the last {work}."),
        ("mfu", f"{role}/mfu", "share",
         f"Model FLOP utilisation: share of the GPU's peak that the model's own arithmetic took in the last {work}.",
         f"Model FLOP utilisation, {whose}"),
        ("gpu_use", f"{role}/gpu/use", "share", "Share of the last second, or less, in which the GPU was busy.",
         f"GPU use, {whose}"),
        ("gpu_memory", f"{role}/gpu/memory", "share", "Share of the GPU's memory that is taken, by whatever process.",
         f"GPU memory, {whose}"),
    )  # fmt: skip


COMPUTING = (
    *_computing("learner", "learner_", "update", "learner"),
    *_computing("policy", "policy_server_", "batch", "policy server"),
)
"""Told only by roles that have a language model, or a GPU."""

SEARCH = _rows(
    "search",
    "search_",
    ("archived", "search/archived", "", "Behaviours in the archive.", "Archive size"),
    ("coverage", "search/coverage", "share",
     "Share of the reachable cells of the descriptor that the archive fills.", "Coverage"),
    ("qd_score", "search/qd_score", "",
     "QD score of the archive: the sum over filled cells of the best quality there, counted from the lowest possible.",
     "QD score"),
    ("best_quality", "search/best_quality", "", "Highest quality in the archive.", "Best quality"),
    ("grid_coverage", "search/grid_coverage", "share", "Coverage of the grid of the best, by the same cells.",
     "Coverage"),
    ("grid_qd_score", "search/grid_qd_score", "", "QD score of the grid of the best.", "QD score"),
    ("grid_best_quality", "search/grid_best_quality", "", "Highest quality in the grid of the best.", "Best quality"),
    ("novelty", "search/novelty", "", "Mean novelty of the population, world units.", "Novelty"),
    ("evaluations", "search/evaluations", "", "Behaviours played."),
    ("evaluations_per_second", "search/rate", "", "Behaviours played per second.", "Evaluations a second"),
    ("generation", "search/generation", "", "Generations closed.", "Generation"),
)  # fmt: skip
EVALUATOR = _rows(
    "player",
    "player_",
    ("evaluations_total", "player/evaluations", "", "Behaviours played.", "Evaluations a second, by evaluator"),
    ("seconds_total", "player/seconds", "seconds", "Time of playing.", "Share of time playing, by evaluator"),
)

FITTER = _rows(
    "fitter",
    "fit_",
    ("step", "fit/step", "", "Gradient steps taken.", "Fit steps"),
    ("loss", "fit/loss", "", "Mean loss since the previous row.", "Fit loss"),
    ("validation_loss", "fit/validation_loss", "", "Loss on held-out steps.", "Fit loss"),
    (
        "accuracy",
        "fit/accuracy",
        "share",
        "Fraction of actions that are the most probable ones of the model.",
        "Fit accuracy",
    ),
    (
        "validation_accuracy",
        "fit/validation_accuracy",
        "share",
        "Fraction of actions that are the most probable ones of the model, on held-out steps.",
        "Fit accuracy",
    ),
    ("gradient_norm", "fit/gradient_norm", "", "Mean gradient norm since the previous row.", "Fit gradient norm"),
)

TABLE = (*CONTROLLER, *WRITTEN, *ACTOR, *LEARNER, *POLICY, *COMPUTING, *SEARCH, *EVALUATOR, *FITTER, *LLM)
"""Every metric of Cairn. Keys are unique: a key alone identifies the role."""
RAY = (
    Metric(
        "object_store_used_memory", "ray", "", "bytes", "Bytes of objects in a node's object store.", "Object store"
    ),
    Metric("object_store_available_memory", "ray", "", "bytes", "Free bytes in a node's object store.", "Object store"),
)
"""Ray's own metrics on the dashboard; they have Ray's labels, not ours."""
