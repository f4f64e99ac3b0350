"""Jobs of SLURM: a run is a job, a sweep is one array of them."""
