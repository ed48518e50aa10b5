#!/bin/sh
# Runs our libcufile and others, NVIDIA's releases for example, side by side on a machine
# with a GPU: the times of what is queued ("pace", alternating), and the answers of
# every function ("play", at the same time). "make lib-hardware" puts everything that is
# needed into bin/hardware; no network, no Go and no compiler are needed.
#
#	versus.sh DATA OUT [NAME=LIBRARY]...
#
# DATA is a directory on a disk, OUT one for the results: pace-NAME-ROUND.txt and
# NAME.json. A table of the medians and ratios, ours to theirs, goes to standard output.
# It takes at most four minutes.
set -u
[ $# -ge 2 ] || { echo "usage: versus.sh DATA OUT [NAME=LIBRARY]..."; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" "$2"
data=$(cd "$1" && pwd) out=$(cd "$2" && pwd)
shift 2
began=$(date +%s)
elapsed() { echo $(($(date +%s) - began)); }

# NVIDIA's library wants a configuration, a udev record of the disk, and two libraries
# by the names that only development packages have.
export CULVERT_MACHINE=${CULVERT_MACHINE:-real}
unset LD_PRELOAD
[ -e /etc/cufile.json ] || export CUFILE_ENV_PATH_JSON="$here/stock.json"
dev=$(stat -c %d "$data")
record=/run/udev/data/b$((dev >> 8)):$((dev & 255))
[ -e "$record" ] || { mkdir -p /run/udev/data; printf 'I:1\nE:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=ext4\n' > "$record"; }
mkdir -p "$data/links"
for name in libudev libmount; do
	for f in /lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu /usr/lib64 /lib64; do
		[ -e "$f/$name.so.1" ] && ln -sf "$f/$name.so.1" "$data/links/$name.so" && break
	done
done
path_of() { # NAME=LIBRARY, or "ours"
	case $1 in ours) echo "$here/lib/libcufile.so.0" ;; *) echo "${1#*=}" ;; esac
}

cd "$data" || exit 1
for round in 1 2 3; do
	for who in ours "$@"; do
		[ "$(elapsed)" -lt 95 ] || break 2
		lib=$(path_of "$who")
		LD_LIBRARY_PATH="$(dirname "$lib"):$data/links${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" timeout 40 "$here/pace" "$lib" "$data/pace" > "$out/pace-${who%%=*}-$round.txt" 2>&1 ||
			echo "pace with ${who%%=*}: exit status $?: $(tail -n 1 "$out/pace-${who%%=*}-$round.txt")"
	done
done
rm -f "$data/pace"

left=$((205 - $(elapsed)))
for who in ours "$@"; do
	name=${who%%=*} lib=$(path_of "$who")
	mkdir -p "$data/$name/disk" "$data/$name/second"
	(cd "$data/$name" && LD_LIBRARY_PATH="$(dirname "$lib"):$data/links${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" timeout $((left + 20)) "$here/play" "$lib" "$here/cases.txt" disk second "$out/$name.json" "$left" > "$out/play-$name.txt" 2>&1
	echo "play with $name: exit status $?, $(grep -c '": \[' "$out/$name.json") cases"
	cp disk/topology "$out/topology-$name.json" 2> /dev/null
	tail -c 100000 cufile.log > "$out/cufile-$name.log" 2> /dev/null) &
done
wait

# The table: each measurement with the median of the rounds, by library.
grep -H . "$out"/pace-*-[123].txt | sed 's|^.*/pace-\(.*\)-[123]\.txt:|\1 |' | sort -k1,1 -k2,2 -k3,3n | awk -v order="ours $*" '
	NF != 4 || $3 !~ /^-?[0-9.]+$/ { next }
	{ key = $1 " " $2; v[key, ++n[key]] = $3; unit[$2] = $4; if (!seen[$2]++) names[++count] = $2 }
	END {
		libraries = split(order, who, " ")
		for (i = 1; i <= libraries; i++) sub(/=.*/, "", who[i])
		for (k = 1; k <= count; k++) {
			line = sprintf("%-28s", names[k])
			for (i = 1; i <= libraries; i++) {
				key = who[i] " " names[k]; m[i] = n[key] ? v[key, int((n[key] + 1) / 2)] : "none"
				line = line sprintf("  %s %s", who[i], m[i])
				if (i > 1 && m[1] > 0 && m[i] > 0) line = line sprintf(" (ours/theirs %.2f)", m[1] / m[i])
			}
			print line "  " unit[names[k]]
		}
	}' | tee "$out/summary.txt"
echo "$(elapsed) s in all"
