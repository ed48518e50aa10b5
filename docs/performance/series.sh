#!/bin/sh
# The series behind docs/performance.md. Needs a GPU, NVIDIA's libcufile for
# comparison, 10 GiB on disk and 8 GiB in /dev/shm.
#
#	series.sh CULVERT DIRECTORY > result.json
#
# Each line of the tables is the median of five runs of one invocation, in which
# Culvert and its peers take turns.
set -eu
[ $# -eq 2 ] || { echo "usage: series.sh CULVERT DIRECTORY > result.json" >&2; exit 2; }
culvert=$1
dir=$2
large=$dir/culvert-8g.bin
shm=/dev/shm/culvert-8g.bin
file=$dir/culvert-2g.bin
trap 'rm -f "$large" "$shm" "$file"' EXIT
# In large blocks, as downloads and checkpoints are written: the page cache keeps
# such files in large folios.
make() { dd if=/dev/zero of="$1" bs=16M count="$2" status=none; }
make "$large" 512
make "$shm" 512
make "$file" 128
sync

# NVIDIA's library wants a udev record for the block device of the file.
dev=$(stat -c %d "$file")
record=/run/udev/data/b$((dev >> 8)):$((dev & 255))
[ -e "$record" ] || { mkdir -p /run/udev/data && printf 'I:1\nE:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=ext4\n' > "$record"; }

bench() { "$culvert" bench "$@" --repeat 5 --json; }

bench "$large" --bs 8G --size 16G --peer libcufile
bench "$shm" --bs 8G --size 16G
rm -f "$large" "$shm"
bench "$file" --bs 1M,16M --threads 16 --time 400ms --peer libcufile --peer memory
bench "$file" --bs 1M --threads 16 --time 400ms --route ring
bench "$file" --bs 64K --threads 8 --time 300ms --peer libcufile --peer memory
bench "$file" --bs 64K --threads 8 --time 300ms --route bar,ring
bench "$file" --bs 256K,1M --threads 8 --time 300ms --peer libcufile
bench "$file" --bs 4K --rw randread --threads 1 --time 300ms --route bar,ring,host --peer libcufile --peer pread --peer memory
bench "$file" --bs 4K --rw randread --threads 8,16 --time 300ms --route bar --peer libcufile --peer memory
bench "$file" --bs 4K --rw randread --threads 8 --batch 128 --time 300ms --route bar,ring --peer libcufile
bench "$file" --bs 1M --threads 8 --cold --time 1s
bench "$file" --rw write --overwrite --bs 2G --size 2G --peer libcufile --peer memory
bench "$file" --rw write --overwrite --bs 16M --threads 4 --time 300ms --peer libcufile --peer memory
