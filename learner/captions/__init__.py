"""Captions by networks instead of by the engine, and noise on captions.

    wanderers play ──> pictures, facts, events ──> one network fitted ──> captioner.json, captioner.safetensors
    picture ──> facts, two pictures ──> event ──> the environment's own sentences (`actors/wrappers/captioning.py`)

Du et al. 2023 (arXiv 2302.06692) caption states and transitions with networks that write words. Here a network only
says which facts hold, and the environment makes the sentence, so that it is a text that is known.
"""
