#!/bin/sh
# For go test -exec where only one word fits, as in a list of mutants: a guest
# with xfs and 4096 byte sectors.
exec go run github.com/culvert-io/culvert/lab/cmd/lab exec -fs xfs -sector 4096 -memory 2048 -- "$@"
