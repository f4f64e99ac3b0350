"""What reward terms are made of: steps to be judged, and networks that judge them by numbers."""
