"""What reward terms are made of: steps, numbers that networks judge, and what an episode has shown already."""
