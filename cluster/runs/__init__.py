"""A run on disk, and the work on it.

folder         what is in it, who may write it                  controller  its stages in order, artifacts, exit codes
stage          what a stage is given and leaves                 artifacts   the manifest of a finished stage
weights        found, read, checked                             supply      will each stage have what it needs?
progress, pace what a person sees meanwhile                     stop        one flag for every way to stop
run_data       reading run folders                              hidden      secrets that no page repeats
"""
