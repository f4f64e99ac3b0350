"""Novelty search by ask and tell. It knows neither world nor player."""
