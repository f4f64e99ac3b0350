"""From a question to its answer: `pipeline` combines the other modules."""
