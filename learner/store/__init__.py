"""Experience on disk: stores that outlive a process."""
