"""The assembled service (`assembly`), and a server process for it: `python -m llm_service.server` starts one."""
