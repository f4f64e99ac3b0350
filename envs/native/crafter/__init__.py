"""Crafter, compiled: N worlds as rows of small integers, each with its own Mersenne Twister."""
