"""Log-probabilities of given continuations: the policy of an agent that acts through a language model.

scorer.py    `Scorer`: texts or token ids in, one score for each candidate out, with gradients where they are on
tokens.py    where a prompt ends and a candidate begins
trie.py      candidates of one prompt as a tree, so that what they share is computed once
seq2seq.py   T5, mT5, flan-T5: each prompt encoded once, all its candidates in one decoder row
causal.py    GPT-2, Llama, Qwen, ...: a prompt and its tree in one row
buckets.py   rows of like length together
"""
