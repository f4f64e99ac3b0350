"""Houses that are to be put in order. Names so far: the world follows."""
