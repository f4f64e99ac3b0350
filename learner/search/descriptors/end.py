"""Where a behaviour ends: two numbers, as Salehi and Doncieux (2023, arXiv 2308.13278) have them."""

from learner.search.descriptors import Places

DESCRIPTOR = Places({"end": 1.0}, cells=20)
