"""`launch.py ask`: the `robot` that a run fitted, what it did in words (`telling`) and as a picture, and its page."""
