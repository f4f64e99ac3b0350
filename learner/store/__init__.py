"""What was lived, on disk: stores that outlive a process.

replay         steps as rows, drawn again as n-step returns (its columns, its priorities)
episodes       finished episodes as Arrow shards: many writers, memory-mapped readers
archive        what a search has found: behaviours and what made them, as Parquet shards (owned: whose they are)
about          what such a folder says of itself
neighbours     the nearest of all points, exactly, in a tree that grows (its machine code: kd_tree)
"""
