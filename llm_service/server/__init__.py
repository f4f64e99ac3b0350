"""The service put together (`assembly`), and alone in a process: `python -m llm_service.server` starts one."""
