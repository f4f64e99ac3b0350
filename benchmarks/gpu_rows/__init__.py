"""What `benchmarks/gpu.py` measures: both sides of each row, on any device, so that a small size runs anywhere."""
