"""BabyAI, compiled: N worlds as rows of small integers."""
