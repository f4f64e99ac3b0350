"""Jobs of Kubernetes: a run is a RayJob, with the LLM service beside it."""
