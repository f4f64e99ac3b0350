"""What is known of a captioner without its weights: the file beside them.

    captioner.json    shape, environment, options        captioner.safetensors    weights

Nothing here imports PyTorch: a configuration is checked by it.
"""

from __future__ import annotations

from pathlib import Path

from envs.api import EnvSpec, Fact
from envs.config import Part
from learner.files import sha256
from learner.store.shards import StoreError

ABOUT, WEIGHTS = "captioner.json", "captioner.safetensors"
PICTURE = "pixels"
"""The field that captioners read."""


class CaptionerShape(Part):
    """What a captioner predicts, and its width."""

    facts: list[tuple[str, str, int, bool]]
    """Name, group, number of values of each fact, and whether it is anywhere, in order, as `envs.api.Fact`."""
    events: list[str]
    """Names of events; one more class is that nothing was done."""
    cells: int
    """Cells that things may be in, as `envs.api.CELLS`: the first of the picture."""
    side: int
    """Pixels of a side of the pictures."""
    width: int
    """Channels of a cell."""
    hidden: int
    """Units of the layers over all cells."""

    @property
    def kinds(self) -> tuple[Fact, ...]:
        """The facts."""
        return tuple(Fact(*fact) for fact in self.facts)


class About(Part):
    """A captioner's metadata, as JSON."""

    env: str
    """The environment that it was fitted in."""
    shape: CaptionerShape
    """What it predicts, and its width."""
    weights: str
    """SHA-256 of the file of weights."""
    seed: int
    """The run's."""


def read(folder: Path) -> About:
    """The metadata of the captioner in a folder.

    Raises:
        StoreError: it is missing or damaged, or does not match the weights beside it.
    """
    path, weights = folder / ABOUT, folder / WEIGHTS
    try:
        about = About.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(f"{folder} holds no {ABOUT}: name the folder of a stage captioner that is done") from None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} is damaged: {str(error).splitlines()[0]}; fit the captioner again") from None
    try:
        if sha256(weights) != about.weights:
            raise ValueError(f"it is not the one that {ABOUT} tells of")
    except (OSError, ValueError) as error:
        raise StoreError(f"{weights} cannot be read: {error}; fit the captioner again") from None
    return about


def assert_tells(about: About, spec: EnvSpec) -> None:
    """Check that a captioner predicts what an environment's sentences are made of, from its pictures.

    Raises:
        ValueError: it does not; one sentence.
    """
    shape, side = about.shape, spec.fields[PICTURE].shape[0]
    if spec.facts != shape.kinds or side != shape.side:
        what = f"pictures of {shape.side} pixels a side" if side != shape.side else f"the captions of {about.env}"
        raise ValueError(
            f"method.captioning.captioner: it was fitted to {what}, not to those of {spec.id}: fit one with "
            "method=captioner"
        )
