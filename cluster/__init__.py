"""Running the system: what is started where, who watches it, what it leaves.

topology       the drawing: roles, counts, what flows between them
run            the single controller: stages in order, artifacts, exit codes
train          the loop of a train stage          evaluation   an evaluation as a queue of seed batches
collect        episodes into a store              fit          a policy to a store
learners       the learner's ranks as one         tally        episodes, speed and bottleneck of a row
supervisor     keeps the actors at work           stop         one flag for every way to stop
backend        where roles run: the interface, and all in this process
local          Ray on this machine                joined       Ray that a job has started (its head: head)
start          here, or in a queue                slurm, kubernetes      jobs, as scripts and manifests
search         a novelty search                   behaviours, imitation  what is made of its archives
judge_server   judging behaviour in the browser   requeue      a job that goes on after preemption
folder         the run folder                     metrics      where numbers go
progress       what a person sees meanwhile
config, sections   the configuration tree         overrides    words of the command line
checks         what is wrong, in words            terminal     overview, errors, exit codes
exporting      numbers of every role to Ray       watching     what the controller tells of itself
alerts         rules, as data                     dashboard, metrics_page   what is made of the table of metrics
sweep          every combination of values        doctor, exposure   is this machine fit, and who can reach it
report         one self-contained page            compare      two runs side by side
run_data       reading run folders                page, plots, success   the pieces of a page
statistics     intervals
"""
