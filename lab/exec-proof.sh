#!/bin/sh
# For go test -exec where only one word fits: the guest of the suite p2pdma/proof, whose
# GPU has the memory of a drive.
exec go run github.com/culvert-io/culvert/lab/cmd/lab exec -suite p2pdma/proof -- "$@"
