"""Property tests must not fail because a machine is busy, and leave nothing behind."""

from hypothesis import settings

settings.register_profile("envs", deadline=None, database=None)
settings.load_profile("envs")
