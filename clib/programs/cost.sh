#!/bin/sh
# Measures the cost of the C library: 4 KiB reads with cuFileRead and with the Go API,
# alternating, and the ratio of the best times: cores of a virtual machine differ by
# a third, and each process gets another one.
#
#	cost.sh C-PROGRAM GO-PROGRAM FILE LIMIT
#
# It prints how many of the C reads used leases, without entering Go, and fails if the
# ratio is above LIMIT.
set -eu
c=$1 go=$2 file=$3 limit=$4
head -c 8192 /dev/zero > "$file"
for _ in 1 2 3 4 5 6 7; do
	echo "lib $("$c" "$file" | sed 's/.*read \([0-9]*\) ns, \([0-9]*\) of \([0-9]*\) by leases/\1 \2 \3/')"
	echo "go $("$go" "$file" | sed 's/read \([0-9]*\) ns/\1/')"
done | sort -k1,1 -k2,2n | awk -v limit="$limit" '
	$2 !~ /^[0-9]+$/ { bad = 1; next } # a run that died
	{ ns[$1, ++n[$1]] = $2; leased += $3; all += $4 }
	END {
		if (bad || !n["lib"] || !n["go"]) { print "a run failed or printed no time"; exit 1 }
		lib = ns["lib", 1]; call = ns["go", 1]; ratio = lib / call
		printf "a 4 KiB read: %d ns through the C library, %d ns by the Go call, ratio %.2f\n", lib, call, ratio
		printf "%d of %d reads through the C library by leases\n", leased, all
		exit ratio > limit
	}'
