"""From a gradient to a step: what serves any learner.

descent       parameters and gradients side by side, averaged over the ranks, clipped
adam          the optimiser, as machine code
precision     float32, or bfloat16 where the processor has it
collective    averages over the ranks
supervised    a loop of such steps over recorded data
"""
