#!/bin/sh
# For go test -exec where only one word fits: the guest of the suite perftest.
exec go run github.com/culvert-io/culvert/lab/cmd/lab exec -suite perftest -- "$@"
