"""Weights reach another process through memory that both see: all of them, of the version that was asked for."""

import pytest
import torch
from torch import multiprocessing, nn

from learner.models.handover import Handover


class Model(nn.Module):
    def __init__(self, seed, width=8):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 3))

    def payload(self):
        return {name: p.detach() for name, p in self.named_parameters()}


def read(handover, pipe):
    model = Model(1)
    while (version := pipe.recv()) is not None:
        handover.take(model, version)
        pipe.send([value.tolist() for value in model.payload().values()])


def test_another_process_has_the_version_that_it_asks_for():
    own = Model(0)
    handover = Handover.of(own)
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=read, args=(handover, theirs), daemon=True)
    process.start()
    told = {}
    for version in (4, 5):
        with torch.no_grad():
            own.layers[0].weight.add_(version)
        handover.publish(own, version)
        told[version] = [value.tolist() for value in own.payload().values()]
    for version in (4, 5, 4):
        pipe.send(version)
        assert pipe.poll(120)
        assert pipe.recv() == told[version]
    pipe.send(None)
    process.join(60)
    assert process.exitcode == 0


def test_weights_are_rounded_to_the_type_of_the_buffer():
    own, other = Model(0), Model(1)
    handover = Handover.of(own, torch.bfloat16)
    assert handover.buffers[0].dtype == torch.bfloat16
    handover.publish(own, 0)
    handover.take(other, 0)
    for name, value in own.payload().items():
        assert torch.equal(other.payload()[name], value.bfloat16().float())


def test_a_model_of_another_size_is_refused():
    with pytest.raises(ValueError, match="a model of 91 weights does not fit a handover of 67"):
        Handover.of(Model(0)).take(Model(0, width=11), 0)
