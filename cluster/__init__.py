"""Running the system: what is started where, who watches it, what it leaves.

run            a run begun, gone on with, judged once more      topology    the drawing: roles, counts, what flows
config/        the configuration: tree, words, checks           stages/     one engine a kind, found by name
roles/         where roles run, and who keeps them at work      jobs/       SLURM, Kubernetes: launchers, found by name
runs/          a run on disk, and the controller's work on it   metrics/    where numbers go, and what they mean
report/        a page of runs, of panels found by name          judge/      judging behaviour in the browser
cli/           what verbs do
"""
