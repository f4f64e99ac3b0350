"""Mutation: parents drawn from the pool with equal chances, then polynomial mutation, as published."""

from __future__ import annotations

from learner.search.emitters import Emitter, Weights
from learner.search.novelty import Purpose, parents, polynomial_mutation, stream


class Mutation(Emitter):
    def ask(self, generation: int, pool: Weights) -> Weights:
        setup = self.setup
        start = pool[parents(len(pool), setup.count, stream(setup.seed, generation, Purpose.PARENTS))]
        generator = stream(setup.seed, generation, Purpose.MUTATION)
        return polynomial_mutation(start, generator, setup.eta, setup.low, setup.high, setup.probability)


EMITTER = Mutation
