"""The measurements of `benchmarks/gpu.py`: both sides of each row, on any device, so a small size runs anywhere."""
