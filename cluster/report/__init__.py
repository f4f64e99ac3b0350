"""What came out: one self-contained page of runs (`document`), and two runs side by side (`compare`)."""
