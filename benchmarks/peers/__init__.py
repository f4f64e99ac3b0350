"""Scripts that run peers, each in its family's own environment: `python -m benchmarks.peers.train_sb3 --seconds 10`.

They are imported there, so nothing here may need more than the family's requirements, and both `__init__` import
nothing.
"""
