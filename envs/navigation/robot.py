"""What a robot is made of, and the small networks that may drive it, in numbers. No compiler is needed to read them."""

SENSORS = 5
"""Numbers sensed: three lasers, two bumpers."""
WHEELS = 2
"""Numbers of an action: how far the left and the right one move in a step, world units."""
FASTEST = 4.0
"""Farthest that a wheel moves in a step, world units."""
TENTHS = 10.0
"""Steps of a wheel's speed to a world unit: small networks choose from whole ones."""
LAYERS = ((SENSORS, 10), (10, 10), (10, 10), (10, WHEELS))
"""Inputs and outputs of each layer of a small network."""
PARAMETERS = sum((inputs + 1) * outputs for inputs, outputs in LAYERS)
"""Its weights and biases: 302."""
