"""What was lived, on disk: stores that outlive a process."""
