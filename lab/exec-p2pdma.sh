#!/bin/sh
# For go test -exec where only one word fits: a guest whose GPU has the memory of
# a drive.
exec go run github.com/culvert-io/culvert/lab/cmd/lab exec -suite cufile/p2pdma -- "$@"
