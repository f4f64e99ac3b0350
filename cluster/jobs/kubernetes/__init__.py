"""Jobs of Kubernetes.

launcher       the manifest of a run, printed or applied        config      what a run asks for: `cluster.kubernetes.*`
ray_cluster    the fields of KubeRay                            language_model    the LLM service and its Redis
manifests      objects as plain dictionaries, locked up
"""
