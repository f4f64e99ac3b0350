"""Fitting a model of segments to preferences (Bradley and Terry 1952; Christiano et al. 2017, arXiv 1706.03741).

    pairs ──> p(first is better) = sigmoid(score of first - score of second) ──> cross-entropy to 1, 0, or 0.5 for a tie

Two models are fitted, one after the other, for the same number of steps. The first never sees some held-out segments,
and is evaluated on the pairs of these. Pairs with only one held-out segment are left out, because the model could have
learned the value of the other. The second model is kept: it learns from all pairs, since each was paid for. Step k is a
function of (seed, k) alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from envs.api import Field
from learner.behaviours.agreement import spearman
from learner.config import Device
from learner.knowledge.prefer_config import PreferConfig
from learner.knowledge.preferences import Preferences
from learner.knowledge.segments import Segments
from learner.models.sequence.segment_scores import SegmentScores
from learner.models.sequence.segment_transformer import (
    MOST_ROWS,
    Column,
    Encoded,
    SegmentShape,
    SegmentTransformer,
)
from learner.models.weights import Weights
from learner.optim.collective import Group
from learner.optim.device import device, send
from learner.optim.supervised import Supervised
from learner.store.episodes import StoreError

FEWEST = 20
"""Minimum number of pairs without ties for fitting."""
BINS = 10
"""Bins of the calibration table."""


@dataclass(frozen=True)
class PreferenceSetup:
    """Everything that the role needs to build itself again."""

    prefer: PreferConfig
    shape: SegmentShape
    segments: Segments
    preferences: Preferences
    seed: int
    threads: int = 1
    device: Device = "cpu"
    exact: bool = False  # equal inputs give equal bits, on a GPU too


@dataclass(frozen=True)
class Fitted:
    """The result of a fit.

    weights: of the kept model.
    mean, spread: of its scores over all segments.
    report: its metrics, for JSON; see `PreferenceFitter.result`.
    """

    weights: Weights
    mean: float
    spread: float
    report: dict[str, Any]


def shape_of(segments: Segments, fields: dict[str, Field], actions: int, width: int) -> SegmentShape:
    """A model that reads all fields of the segments except texts and pictures.

    Args:
        fields: of the environment, with their kinds.
        actions: number of the environment's actions.

    Raises:
        StoreError: the segments are from another environment, or have no field that the model can read.
    """
    columns = dict[str, Column]()
    for name, values in segments.obs.items():
        field = fields.get(name)
        if field is None or values.shape[2:] != field.shape:
            raise StoreError(f"the segments hold {name} {list(values.shape[2:])}, which this world does not show")
        if field.kind == "text" or field.kind == "pixels":
            continue
        if field.kind == "vector":
            flat = values.reshape(-1, *field.shape).astype(np.float64)
            spread = flat.std(0)
            mean, spread = (tuple(part.ravel().tolist()) for part in (flat.mean(0), np.where(spread > 0, spread, 1)))
            columns[name] = Column(kind="vector", shape=field.shape, mean=mean, spread=spread)
            continue
        largest = values.reshape(-1, field.shape[-1] if field.kind == "grid" else 1).max(0)
        sizes = tuple(max(int(value) + 1, field.size) for value in largest)
        columns[name] = Column(kind=field.kind, shape=field.shape, sizes=sizes)
        if (rows := columns[name].symbols * columns[name].places) > MOST_ROWS:
            raise StoreError(
                f"{name} has {columns[name].symbols:,} symbols in {columns[name].places} places: a table of {rows:,} "
                f"rows, and {MOST_ROWS:,} are the most"
            )
    if not columns:
        raise StoreError("a model of segments reads grids, categories and vectors: the segments hold none of them")
    if segments.actions.size and segments.actions.max() >= actions:
        raise StoreError(f"the segments hold action {segments.actions.max()}, and this world has only {actions}")
    return SegmentShape(window=segments.actions.shape[1] + 1, actions=actions, columns=columns, width=width)


class Fit(Supervised):
    """One model, fitted to the pairs that are not held out."""

    RATE: ClassVar[str] = "method.prefer.learning_rate"
    WHAT: ClassVar[str] = "model of segments"

    def __init__(
        self, setup: PreferenceSetup, encoded: Encoded, preferences: Preferences, held_out: NDArray[np.bool_]
    ) -> None:
        with torch.random.fork_rng([]):
            torch.manual_seed(setup.seed)
            model = SegmentTransformer(setup.shape).to(encoded.device)
        super().__init__(setup.prefer, Group(), model, held_out, 0, [setup.seed], exact=setup.exact)
        self.encoded = encoded
        pairs = np.stack([preferences.first, preferences.second])
        self._pairs, self._wanted = send({0: pairs, 1: preferences.probability}, encoded.device).values()

    def learn(self, batch: NDArray[np.int64]) -> tuple[Any, Any]:
        rows = send({"rows": batch}, self.encoded.device)["rows"]
        first, second = self.model(self.encoded, self._pairs[:, rows].flatten()).chunk(2)
        logits, wanted = first - second, self._wanted[rows]
        loss = binary_cross_entropy_with_logits(logits, wanted)
        loss.backward()  # type: ignore[no-untyped-call]
        return self.number(loss), self.number(_accuracy(logits, wanted))

    def validate(self) -> dict[str, float]:
        """Nothing: it is evaluated at the end."""
        return {}


class PreferenceFitter:
    """A role. Methods are called by the controller, one at a time.

    Raises:
        StoreError: so much is held out that no training pair is left.
    """

    def __init__(self, setup: PreferenceSetup) -> None:
        torch.set_num_threads(setup.threads)
        self.setup, preferences = setup, setup.preferences
        random = np.random.default_rng([setup.seed, 0])
        if setup.prefer.permute:
            dealt = preferences.probability[random.permutation(len(preferences))]
            preferences = Preferences(preferences.first, preferences.second, dealt)
        unseen = random.random(len(setup.segments)) < setup.prefer.validation
        first, second = unseen[preferences.first], unseen[preferences.second]
        self._all, self._held_out = preferences, preferences.take(first & second)
        encoded = Encoded(setup.shape, setup.segments.windows(), device(setup.device))
        self._kept = Fit(setup, encoded, preferences, np.zeros(len(preferences), np.bool_))
        self._fits = [self._kept]
        if setup.prefer.validation:
            if not (~first & ~second).any():
                raise StoreError("no pair is left to learn from: lower method.prefer.validation, or label more pairs")
            self._fits.insert(0, Fit(setup, encoded, preferences, first | second))

    def ready(self) -> dict[str, int]:
        """Counts of the training data, once the role is built, and the number of steps."""
        learned = len(self._fits[0].training)
        counts = {"pairs": len(self._all), "ties": int((self._all.probability == 0.5).sum())}
        return counts | {
            "measured_on": len(self._held_out),
            "measured_learned": learned,
            "steps": self.setup.prefer.steps * len(self._fits),
        }

    def fit(self, steps: int) -> list[list[float]]:
        """Take this many gradient steps, or the remaining ones. Returns loss, accuracy and gradient norm of each."""
        found: list[list[float]] = []
        for each in self._fits:
            found += each.fit(min(steps - len(found), self.setup.prefer.steps - each.step))
        return found

    def result(self) -> Fitted:
        """The result, after all steps. The report:

        pairs, ties, measured_on, measured_learned: counts, as `ready`.
        accuracy, log_loss, calibration: of the first model on unseen pairs, see `measured`; also the log_loss of a
            model that always predicts 0.5.
        agreement: Spearman's correlation of the kept model with the return to go, over all segments; None: one does not
            vary.
        """
        setup = self.setup
        weights = self._kept.weights()
        scores = self._scores(self._kept).astype(np.float64)
        spread = float(scores.std())
        agreement = spearman(scores, setup.segments.to_come.astype(np.float64))
        report: dict[str, Any] = self.ready() | {"agreement": agreement if np.isfinite(agreement) else None}
        if len(self._fits) > 1:
            report |= measured(self._held_out, self._scores(self._fits[0]))
        return Fitted(weights, float(scores.mean()), spread if spread > 0 else 1.0, report)

    def _scores(self, fit: Fit) -> NDArray[np.float32]:
        """Scores of all segments, computed as in use."""
        return SegmentScores(self.setup.shape, fit.weights()).of(self.setup.segments.windows())


def measured(preferences: Preferences, scores: NDArray[np.float32]) -> dict[str, Any]:
    """Metrics of a model's scores [S] on pairs that it was not trained on.

    accuracy: share of the `decided` pairs, those without a tie, whose better segment has the higher score; None if
        there is none.
    log_loss: mean cross-entropy to the labels, nats; undecided: the same for a constant prediction of 0.5; None without
        pairs.
    calibration: for each tenth of the predicted probability that the first is better: its mean, the share of pairs in
        which the first is better (a tie counts half), and the number of pairs; only non-empty tenths.
    """
    if not len(preferences):
        return {"accuracy": None, "decided": 0, "log_loss": None, "undecided": None, "calibration": []}
    logits = (scores[preferences.first] - scores[preferences.second]).astype(np.float64)
    wanted = preferences.probability.astype(np.float64)
    loss = np.logaddexp(0, -logits) + (1 - wanted) * logits
    said = 1 / (1 + np.exp(-logits))
    which = np.minimum((said * BINS).astype(np.int64), BINS - 1)
    table = [
        {"predicted": float(said[rows].mean()), "first": float(wanted[rows].mean()), "pairs": int(rows.sum())}
        for rows in (which == b for b in range(BINS))
        if rows.any()
    ]
    accuracy = preferences.agreement(scores)
    return {
        "accuracy": accuracy if np.isfinite(accuracy) else None,
        "decided": preferences.decided,
        "log_loss": float(loss.mean()),
        "undecided": float(np.log(2)),
        "calibration": table,
    }


def _accuracy(logits: Tensor, wanted: Tensor) -> Tensor:
    """Share [] of pairs without a tie that are predicted correctly; 0.5 if all are ties."""
    decided = wanted != 0.5
    right = ((logits > 0) == (wanted > 0.5)) & decided
    return torch.where(decided.any(), right.sum() / decided.sum(), 0.5)
