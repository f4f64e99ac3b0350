"""`python -m llm_service.backends.faulty`: the server that fails according to a script."""

from llm_service.backends.faulty.server import main

main()
