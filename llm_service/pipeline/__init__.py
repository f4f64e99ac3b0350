"""A question's way to its answer: `path` joins what the other modules do."""
