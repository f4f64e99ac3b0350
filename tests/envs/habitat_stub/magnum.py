"""Stand-in for the few vectors of magnum that our adapter uses. Ours, for tests; it has no code of theirs."""

import numpy as np


class Vector3:
    """x, y, z."""

    def __init__(self, x, y, z):
        self._values = [float(x), float(y), float(z)]

    def __getitem__(self, axis):
        return self._values[axis]


class Vector2i:
    """Two whole numbers."""

    def __init__(self, x, y):
        self._values = [int(x), int(y)]

    def __getitem__(self, axis):
        return self._values[axis]


class Quaternion:
    """A rotation: a vector and a scalar."""

    def __init__(self, vector, scalar):
        self.vector, self.scalar = Vector3(*(vector[axis] for axis in range(3))), float(scalar)

    def __mul__(self, other):
        a, b = np.array([self.vector[i] for i in range(3)]), np.array([other.vector[i] for i in range(3)])
        vector = self.scalar * b + other.scalar * a + np.cross(a, b)
        return Quaternion(vector, self.scalar * other.scalar - a @ b)


class Matrix4:
    """Of a body, as far as it moves points."""

    def __init__(self, rotation, translation):
        self._rotation, self._translation = rotation, translation

    def transform_point(self, point):
        return Vector3(*(self._rotation @ [point[i] for i in range(3)] + self._translation))
