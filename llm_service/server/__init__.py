"""The service alone in a process, and what stands at its door. `python -m llm_service.server` starts one.

assembly   a service put together from its configuration, here or in a run
process    listens, and ends by a signal             servicer   the gRPC methods
config     the key `server`                          guard      tokens, who may listen where
"""
