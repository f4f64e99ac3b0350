"""What was lived, on disk: stores that outlive a process.

episodes       finished episodes as Arrow shards: many writers, memory-mapped readers
"""
