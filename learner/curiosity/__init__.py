"""Building blocks of intrinsic reward terms: the steps to evaluate, and networks that evaluate them."""
