"""The house robot, compiled: wheels, bumpers, lasers and small policies."""
