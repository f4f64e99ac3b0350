"""Language models as policies.

llm_policy        scores the names of the actions: the policy
language_model    loading a model, its adapters
prompter          from observations to prompts
prompt            what a prompt says
rewording         other words for the same things
probes            states whose right action is plain
"""
