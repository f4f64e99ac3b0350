"""Running the system: where processes start, who monitors them, and what a run leaves on disk.

run            start, resume or evaluate a run                  topology    the drawing: roles, counts, data flow
config/        the configuration: tree, overrides, checks       stages/     one engine per kind, found by name
roles/         where roles run, and their supervision           jobs/       SLURM, Kubernetes: launchers, found by name
runs/          a run on disk, and the controller's work on it   metrics/    where numbers go, and what they mean
report/        a page about runs, from panels found by name     judge/      judging behaviour in the browser
cli/           the work of the verbs
"""
