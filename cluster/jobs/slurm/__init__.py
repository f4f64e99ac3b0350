"""Jobs of SLURM.

launcher       runs handed over, looked up, stopped             array       a sweep as one array of jobs
config         what a job asks for: `cluster.slurm.*`           commands    sbatch, squeue, sacct, scancel
batch_script   the script that sbatch reads                     preparation what comes before a job
head           Ray's head in a job of several nodes             requeue     shall a job be queued again?
"""
