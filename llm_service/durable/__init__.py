"""The durable lane, on Redis Streams: what may be late and must not be lost."""
