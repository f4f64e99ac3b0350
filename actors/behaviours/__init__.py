"""Robots in the house, by the thousand: who plays where `learner/behaviours` learns. LGQD's own.

novelty    `NoveltyPlayer`: sub-populations of small policies, for the search
deploy     `deploy`: robots that a transformer drives, as texts ask
"""
