"""The durable lane, on Redis Streams: jobs that may be late but must not be lost."""
