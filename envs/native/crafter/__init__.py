"""Crafter, compiled: N worlds as rows of small integers, each with its own Mersenne Twister.

layout      what a row means: player, clocks, inventory, achievements, chunks, objects, map
twister     random numbers as numpy.random.RandomState draws them              (compiled)
terrain     seeds -> new worlds                                                (compiled)
objects     how objects come, move and go                                      (compiled)
player      what players do, and what living costs them                        (compiled)
creatures   what cows, zombies, skeletons, arrows and plants do                (compiled)
life        a step: player, objects, births and deaths by chunk                (compiled)
sight       what players see                                                   (compiled)
picture     the same as pixels                                                 (compiled)
world       the world: `VectorEnv` over rows
"""
