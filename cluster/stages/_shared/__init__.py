"""Code that several kinds of stage share; nothing here is a kind of its own."""
