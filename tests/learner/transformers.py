"""Small transformers of histories, and fits of them, of a world that does not exist."""

import torch

from learner.config import LearnerConfig
from learner.context.config import ARMS, RetrieveConfig, SequenceConfig
from learner.context.fit import HistoryFitter, HistorySetup
from learner.models.sequence.history_steps import HistoryShape
from learner.models.sequence.history_transformer import HistoryTransformer
from learner.models.weights import get_weights
from tests.learner.histories import SPEC

LENGTHS = [[7, 9, 9, 4, 9, 9], [9] * 7, [5], [9, 1, 8, 9]]  # of the episodes of four tasks
CONFIG = SequenceConfig(
    width=24, layers=2, heads=3, band=4, bins=8, skip=2, steps=40, batch=6, tokens=40, warmup=2, device="cpu"
)
RETRIEVE = RetrieveConfig(every=3, past=2, future=3, pool=3, nearest=4, minimum=3)


def loud(made):
    """With weights that are large enough for every part to matter."""
    torch.manual_seed(0)
    for weight in made.parameters():
        weight.data.copy_(torch.randn_like(weight) * (0.3 if weight.ndim > 1 else 1.0))
    return made.eval()


def model(conditioned=True, chunk=5, last=True, **config):
    """A transformer, and none that was fitted."""
    shape = HistoryShape.of(SPEC, 4, conditioned, (3.0,), chunk, last)
    return loud(HistoryTransformer(shape, CONFIG.model_copy(update=config)))


def setup(store, arm="same_task", encoder=None, retrieve=RETRIEVE, **config):
    return HistorySetup(
        CONFIG.model_copy(update=config), retrieve, ARMS[arm], SPEC, LearnerConfig(), 7, store.folder, encoder
    )


def fitter(store, arm="same_task", **more):
    encoder = get_weights(model(chunk=0)) if arm == "radt" else None
    made = HistoryFitter(setup(store, arm, encoder, **more))
    made.look_up()
    return made


def close(found, expected, atol=1e-5):
    torch.testing.assert_close(found, expected, atol=atol, rtol=atol)
