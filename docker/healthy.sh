#!/bin/sh
# healthy.sh WHERE [CA]: does the LLM service at WHERE (HOST:PORT or its folder) answer? It does a piece of work to say so.
# Its token is in CAIRN_LLM_TOKEN, or in the folder. CA: the file with the authority that signed its certificate.
cd "$(dirname "$0")/.." || exit 1
exec python -c '
import sys
from llm_service.client import Tls, connect
where, *ca = sys.argv[1:]
with connect(where, tls=Tls(ca=ca[0]) if ca else None, deadline=20.0) as door:
    ok, reason = door.health()
print("healthy" if ok else reason)
sys.exit(not ok)
' "$@"
