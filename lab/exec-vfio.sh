#!/bin/sh
# For go test -exec where only one word fits: the guest of the vfio suites.
exec go run github.com/culvert-io/culvert/lab/cmd/lab exec -suite vfio/512 -- "$@"
