#!/bin/bash
# secrets.sh [NAMESPACE [PREFIX]]  prints the Secrets that cluster=kubernetes counts on, for `kubectl apply -f -`
# secrets.sh env                   prints what compose.yaml counts on, for docker/.env
# Everything is drawn anew. Keep what is printed nowhere else: apply it once, and it is in the cluster.
set -euo pipefail
umask 077
random() { openssl rand -hex 32; }
redis_users() { # the user cairn, by the hash of its password, administers nothing and keeps no scripts: it needs EVAL
    printf 'user default off\nuser cairn on #%s ~* &* +@all -@admin -@dangerous -@scripting +info +eval\n' \
        "$(printf %s "$1" | openssl dgst -sha256 -r | cut -d' ' -f1)"
}
if [ "${1:-}" = env ]; then
    printf 'CAIRN_LLM_TOKEN=%s\nCAIRN_REDIS_PASSWORD=%s\nGRAFANA_PASSWORD=%s\n' "$(random)" "$(random)" "$(random)"
    exit
fi
namespace=${1:-default}
prefix=${2:-cairn}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
# An authority that signs one certificate, for every LLM service of the namespace, and is then forgotten.
curve=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
openssl req -x509 "${curve[@]}" -days 3650 -subj "/CN=cairn $namespace" -keyout ca.key -out ca.crt
openssl req "${curve[@]}" -subj /CN=cairn-llm -keyout tls.key -out tls.csr
printf 'subjectAltName=DNS:*.%s.svc,DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n' "$namespace" > names
openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile names -out tls.crt
for name in auth_token token password; do printf %s "$(random)" > "$name"; done
redis_users "$(cat password)" > users.acl

secret() { # secret NAME FILE...
    printf -- '---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: %s\n  namespace: %s\ntype: Opaque\ndata:\n' "$1" "$namespace"
    shift
    for file in "$@"; do printf '  %s: %s\n' "$file" "$(base64 -w0 "$file")"; done
}
secret "$prefix-ray" auth_token
secret "$prefix-llm" token
secret "$prefix-llm-tls" ca.crt tls.crt tls.key
secret "$prefix-redis" password users.acl
