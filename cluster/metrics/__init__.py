"""Numbers: where they go, what each means, how sure it is."""
