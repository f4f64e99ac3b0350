"""The service over HTTP as an OpenAI-compatible API: any client of that protocol can ask any backend.

http.py        one connection: token, limits, body, reply      requests.py    bodies, checked, as calls
endpoints.py   paths, and what the service answers             replies.py     replies and errors as JSON
"""
