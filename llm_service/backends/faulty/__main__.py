"""`python -m llm_service.backends.faulty`: the server that fails on script."""

from llm_service.backends.faulty.server import main

main()
