"""From an archive of behaviours to a transformer's training data and evaluation (`learner/methods/lgqd.py`).

After Salehi and Doncieux (2023, arXiv 2308.13278). Stages of `cluster/stages/curate`, and the stages after them, call
this.
"""
