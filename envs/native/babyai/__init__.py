"""BabyAI, compiled: N worlds as rows of small integers.

layout      what a row means: agent, mission program, map, things
motion      actions, and whether the mission is accomplished           (compiled)
sight       what agents see, and the sentences that describe it        (compiled)
plan, drawing, instructions, reach
            what a level is drawn from; its rooms, things and clauses  (compiled)
levels/     a function for each of Minigrid's `gen_mission`            (compiled)
generators  the levels that have a compiled generator
packing     Minigrid's environments <-> rows
exact       rows from Minigrid's own generator, ahead of time
texts       missions and captions of rows as ids of texts
world       the world: `VectorEnv` over rows
"""
