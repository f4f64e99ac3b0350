"""Language models as policies."""
