"""SLURM jobs: a run is a job, a sweep is a job array."""
