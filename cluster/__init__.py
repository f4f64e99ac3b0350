"""Running the system: what is started where, who watches it, what it leaves.

topology       the drawing: roles, counts, what flows between them
run            a run begun, gone on with, judged once more       controller   its stages in order, artifacts, exit codes
stage          what a stage is given and leaves   stages       one engine a kind, found by its name
acting         stages in which actors play        evaluation   an evaluation as a queue of seed batches
supply         will each stage have its weights and episodes?   account   a training's counters, rows, checkpoints
fitting        gradient steps on a store          behaviours   stages on what archives hold
asking         questions of a stage to a language model
learners       the learner's ranks as one         tally        episodes, speed and bottleneck of a row
supervisor     keeps the actors at work           stop         one flag for every way to stop
backend        where roles run: the interface, and all in this process
local          Ray on this machine                joined       Ray that a job has started (its head: head)
start          here, or in a queue                slurm, kubernetes      jobs, as scripts and manifests
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
