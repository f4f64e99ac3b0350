"""What several kinds of stage have in common; nothing here is a kind."""
