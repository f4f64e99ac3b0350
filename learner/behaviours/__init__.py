"""From an archive of behaviours to what a transformer learns from, and is judged by (`learner/methods/lgqd.py`).

After Salehi and Doncieux (2023, arXiv 2308.13278). Verbs of `cluster/stages/curate` call this, and stages after them.
"""
