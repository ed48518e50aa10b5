#!/bin/sh
# Compares culvert cp with cp and sync, and with rclone, if it is installed: a tree of small
# files and one large file, on an ext4 in a loop device, which has no reflinks. The programs
# run in turns; each round begins with an empty destination and the source in the page
# cache. Prints seconds per round; the last line of each is the median.
# usage: copyrates.sh CULVERT [FILES [BYTES [ROUNDS]]]   (as root)
set -eu
culvert=$(realpath "$1") files=${2:-2000} bytes=${3:-8589934592} rounds=${4:-5}
work=$(mktemp -d "${COPYRATES_DIR:-/tmp}/copyrates.XXXXXX")
trap 'umount "$work/mnt" 2>/dev/null || true; rm -rf "$work"' EXIT
truncate -s $((bytes * 2 + files * 65536 + 1073741824)) "$work/image"
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$work/image"
mkdir "$work/mnt"
mount -o loop "$work/image" "$work/mnt"
mkdir "$work/mnt/tree" "$work/mnt/large"
head -c 16384 /dev/urandom >"$work/block"
i=0
while [ $i -lt "$files" ]; do
	d=$work/mnt/tree/$((i / 100))
	mkdir -p "$d"
	head -c $((1 + i * 7 % 16384)) "$work/block" >"$d/$i"
	i=$((i + 1))
done
head -c "$bytes" /dev/urandom >"$work/mnt/large/file"
sync

# once SOURCE PROGRAM: the seconds of one copy to stable storage
once() {
	rm -rf "$work/mnt/out"
	sync
	find "$work/mnt/$1" -type f -exec cat {} + >/dev/null
	start=$(date +%s.%N)
	case $2 in
	cp) cp -r "$work/mnt/$1" "$work/mnt/out" && sync ;;
	rclone) rclone copy -q "$work/mnt/$1" "$work/mnt/out" && sync ;;
	culvert) CULVERT_MACHINE=soft "$culvert" cp -q "$work/mnt/$1" "$work/mnt/out" >/dev/null ;;
	esac
	end=$(date +%s.%N)
	diff -r "$work/mnt/$1" "$work/mnt/out" >/dev/null || { echo "$2 copied something else" >&2; exit 1; }
	echo "$end $start" | awk '{printf "%.2f\n", $1 - $2}'
}

programs="cp culvert"
if command -v rclone >/dev/null; then programs="$programs rclone"; fi
for what in tree large; do
	round=0
	while [ $round -lt "$rounds" ]; do
		for p in $programs; do once $what $p >>"$work/$what.$p"; done
		round=$((round + 1))
	done
	for p in $programs; do
		echo "$what $p: $(tr '\n' ' ' <"$work/$what.$p")median $(sort -n "$work/$what.$p" | awk '{v[NR]=$1} END {print v[int((NR + 1) / 2)]}')"
	done
done
