#!/bin/sh
# For go test -exec where only one word fits: a guest with two memory nodes.
exec go run github.com/culvert-io/culvert/lab/cmd/lab exec -suite ring/nodes -- "$@"
