#!/bin/sh
# healthy.sh WHERE [CA [alive]]: does the LLM service at WHERE (HOST:PORT or its folder) answer? It does a piece of work
# to say so; with `alive` it need not, since a model that is away is not the service's fault.
# Its token is in CAIRN_LLM_TOKEN, or in the folder. CA: the file with the authority that signed its certificate.
cd "$(dirname "$0")/.." || exit 1
exec python -c '
import sys
from llm_service.client import Tls, connect
where, ca, alive, *_ = [*sys.argv[1:], "", ""]
with connect(where, tls=Tls(ca=ca) if ca else None, deadline=20.0) as door:
    ok, reason = (bool(door.stats()), "") if alive else door.health()
print("healthy" if ok else reason)
sys.exit(not ok)
' "$@"
