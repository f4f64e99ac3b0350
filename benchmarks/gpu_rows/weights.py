"""Weights of a large model from a learner to another process on the same GPU: ours, and through a file in memory."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, multiprocessing

from benchmarks.gpu_rows import large_t5
from benchmarks.gpu_rows.chip import Chip, Size
from benchmarks.gpu_rows.large_t5 import Shape
from benchmarks.measure import DifferentOutputs, OursFailed, PeerFailed
from learner.models.handover import Handover

MEMORY = Path("/dev/shm")
PATIENCE = 120.0
"""Seconds that a process may take to answer."""


class Large:
    """A model as a learner hands it over: all of its weights."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        self.model = large_t5.build(shape, device)

    def payload(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.model.named_parameters()}

    def sums(self) -> list[float]:
        """The sum of each tensor, to see whether two models are the same."""
        return torch.stack([value.double().sum() for value in self.payload().values()]).tolist()


def read(shape: Shape, device: str, handover: Handover, questions: Any) -> None:
    """The other process: takes the weights that a message names, or sends its sums."""
    torch.set_num_threads(1)
    model = Large(shape, torch.device(device))
    questions.send("ready")
    while (asked := questions.recv()) is not None:
        if asked == "sums":
            questions.send(model.sums())
            continue
        if isinstance(asked, int):
            handover.take(model, asked)
        else:
            found = load_file(asked, device=device)
            for name, value in model.payload().items():
                value.copy_(found[name])
            if device != "cpu":
                torch.cuda.synchronize()
        questions.send("taken")


class Weights:
    """A learner and a reader, each in its own process. A time runs from changed weights to weights taken."""

    def __init__(self, chip: Chip, size: Size) -> None:
        self.model, self.version = Large(size.model, chip.device), 0
        self.handover = Handover.of(self.model)
        context = multiprocessing.get_context("spawn")
        self.questions, theirs = context.Pipe()
        given = (size.model, chip.device.type, self.handover, theirs)
        self.process = context.Process(target=read, args=given, daemon=True)
        self.process.start()
        theirs.close()  # so that a dead process is noticed
        self._answer()
        self.note = f"{self.handover.buffers[0].nbytes / 1e9:.1f} GB; {chip.memory()} in the learner's process"
        self.play_ours()
        self.play_peer()

    def _answer(self) -> Any:
        if not self.questions.poll(PATIENCE):
            raise OursFailed(f"the reader of weights did not answer in {PATIENCE:.0f} s")
        try:
            return self.questions.recv()
        except EOFError:
            raise OursFailed("the reader of weights ended: its error is above") from None

    def play_ours(self) -> float:
        """Seconds that a handover takes.

        Raises:
            DifferentOutputs: the reader has other weights.
        """
        self.version += 1
        for value in self.model.payload().values():
            value.add_(1e-3)
        begun = time.perf_counter()
        self.handover.publish(self.model, self.version)
        self.questions.send(self.version)
        self._answer()
        took = time.perf_counter() - begun
        self._same()
        return took

    def play_peer(self) -> float:
        """
        Raises:
            PeerFailed: the memory file system has no room.
        """
        for value in self.model.payload().values():
            value.add_(1e-3)
        try:
            with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
                path = str(Path(folder) / "weights.safetensors")
                begun = time.perf_counter()
                save_file(self.model.payload(), path)
                self.questions.send(path)
                self._answer()
                took = time.perf_counter() - begun
        except OSError as error:
            raise PeerFailed(f"{MEMORY}: {error}") from None
        self._same()
        return took

    def _same(self) -> None:
        self.questions.send("sums")
        if self._answer() != self.model.sums():
            raise DifferentOutputs("the reader's weights are not the learner's")

    def close(self) -> None:
        """End the other process."""
        with contextlib.suppress(BrokenPipeError):
            self.questions.send(None)
        self.process.join(PATIENCE)
