"""What reward terms are made of.

steps       steps to be judged, of chunks or of a replay
networks    a term whose networks judge observations, and learn from them: the half that RND and APT share
reading     observations as numbers
moments     running mean and variance, equal on all ranks
visits      which observations an episode has shown already
"""
