"""Policies."""

from learner.models.config import PolicyConfig

__all__ = ["PolicyConfig"]
