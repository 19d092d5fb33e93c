#!/usr/bin/env bash
# Creates, finds, moves and cancels timers with curl.
set -euo pipefail
server=${TOURBILLON_SERVER:-http://127.0.0.1:7117}

# Sends a request with a JSON body; prints the answer and fails if the server refuses.
call() {
    local method=$1 path=$2
    shift 2
    curl --silent --show-error --fail-with-body --max-time 10 --request "$method" "$server$path" \
        --header 'content-type: application/json' ${TOURBILLON_API_KEY:+--header "authorization: Bearer $TOURBILLON_API_KEY"} \
        ${1:+--data "$1"}
}
# Prints a field of a JSON object, without further tools.
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }
expect() { [ "$2" = "$3" ] || { echo "timers.sh: $1 is $2 and not $3" >&2; exit 1; }; }

echo "== an order expires in 15 minutes unless it is paid"
order='{"key": "curl order 4711", "name": "curl customer 7", "after": "15m", "payload": {"order": 4711}, "deliver": {"queue": "orders"}}'
created=$(call POST /v1/timers "$order")
echo "$created"
id=$(echo "$created" | field id)

echo "== the same request again makes no second timer"
again=$(call POST /v1/timers "$order")
expect "the id of the repeated create" "$(echo "$again" | field id)" "$id"

echo "== it is found by its key"
call GET "/v1/timers?key=curl%20order%204711" | grep --quiet "$id"

echo "== one more hour"
call PATCH "/v1/timers/$id" '{"after": "1h"}'
echo

echo "== it is paid: cancel by key, and then all of the customer's by name"
counts=$(call POST /v1/cancel '{"key": "curl order 4711"}')
echo "$counts"
expect "the number of cancelled timers" "$(echo "$counts" | field cancelled)" 1
for number in 1 2 3; do
    call POST /v1/timers "{\"name\": \"curl customer 7\", \"after\": \"${number}h\", \"deliver\": {\"queue\": \"orders\"}}" >/dev/null
done
counts=$(call POST /v1/cancel '{"name": "curl customer 7"}')
echo "$counts"
expect "the number of cancelled timers" "$(echo "$counts" | field cancelled)" 3
