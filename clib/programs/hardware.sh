#!/bin/sh
# Runs the C programs on real hardware: NVIDIA's libcuda and libcudart, our
# libcufile. "make lib-hardware" puts everything that is needed into bin/hardware;
# no Go and no compiler are needed here.
#
#	hardware.sh [--vendor] [DATA]
#
# DATA is a directory for files, by default a temporary one. The transcript goes
# to standard output. With --vendor the cases of package cufiletest run on our
# library and on NVIDIA's, and the results go to ours.json and vendor.json in $OUT,
# by default DATA ("go run ./clib/differential compare" compares them). NVIDIA's
# library needs a udev record for DATA's block device, which is written if there is
# none, and both directories there, because it accepts no file in memory.
set -u
here=$(cd "$(dirname "$0")" && pwd)
vendor=
[ "${1:-}" = --vendor ] && vendor=1 && shift
data=${1:-$(mktemp -d)}
failed=0

cuda=
for d in /usr/local/cuda/lib64 /usr/local/cuda/targets/*-linux/lib; do
	[ -e "$d/libcudart.so.13" ] && cuda=$d && break
done
[ -n "$cuda" ] || { echo "no libcudart.so.13 under /usr/local/cuda"; exit 1; }
export LD_LIBRARY_PATH="$here/lib:$cuda" CULVERT_MACHINE=real
unset LD_PRELOAD

# show NAME COMMAND...: the command, what it prints, and how it ended.
show() {
	echo "\$ $1"
	shift
	"$@" 2>&1
	rc=$?
	[ $rc = 0 ] || { echo "exit status $rc"; failed=1; }
}

# compare NAME EXPECTED COMMAND...: how its lines differ from those expected, and
# its status from $status.
status=0
compare() {
	name=$1 want=$2
	shift 2
	{ "$@"; } > "$data/$name.out" 2>&1
	rc=$?
	sed -i '/Segmentation fault/d' "$data/$name.out" # says the shell, not the program
	total=$(wc -l < "$want")
	echo "\$ $name (exit status $rc)"
	if diff "$want" "$data/$name.out" > "$data/$name.diff"; then
		echo "all $total lines as on the software machine"
	else
		echo "$(grep -c '^>' "$data/$name.diff") of $total lines differ (< software, > hardware):"
		cat "$data/$name.diff"
		failed=1
	fi
	[ $rc = $status ] || failed=1
}

printf 'Hello, GDS World!' > "$data/test.txt"
cd "$data" || exit 1
show "strrev test.txt" "$here/strrev" test.txt
echo "\$ cat test.txt; wc -c test.txt"
cat test.txt; echo; wc -c < test.txt
show "strrev test.txt" "$here/strrev" test.txt
cat test.txt; echo
show "rw data" "$here/rw" data
show "rw++ data" "$here/rw++" data
show "pinned" "$here/pinned"
show "uvm" "$here/uvm"
show "mapped" "$here/mapped"
echo "\$ pinned fail"
"$here/pinned" fail
show "fork" "$here/fork" forked
show "quiet" "$here/quiet"
show "context" "$here/context" kept
show "stress" "$here/stress" "$data" 64 20 1
show "cost" "$here/cost.sh" "$here/cost" "$here/cost-go" "$data/cost" 1.10
compare driver "$here/driver.txt" "$here/driver"
compare runtime "$here/runtime.txt" "$here/runtime"
mkdir -p "$data/leased"
show "leases" "$here/leases" "$data/leased" 32 1000 1 orderly
compare lease "$here/lease.txt" "$here/lease" "$data/leased"
compare misuse "$here/misuse.txt" "$here/misuse" "$data/misused"
status=139 # it dies of a fault of its own
compare host "$here/host.txt" "$here/host"
status=0
compare signals "$here/signals.txt" "$here/signals" "$data/signalled"
compare cancel "$here/cancel.txt" "$here/cancel"
compare streams "$here/streams.txt" "$here/streams" "$data/streamed"

if [ -n "$vendor" ]; then
	dev=$(stat -c %d "$data")
	record=/run/udev/data/b$((dev >> 8)):$((dev & 255))
	[ -e "$record" ] || { mkdir -p /run/udev/data; printf 'I:1\nE:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=ext4\n' > "$record"; }
	mkdir -p "$data/disk" "$data/second"
	for who in ours vendor; do
		lib="$here/lib/libcufile.so.0"
		[ $who = vendor ] && lib="$cuda/libcufile.so.0"
		show "play $who" "$here/play" "$lib" "$here/cases.txt" "$data/disk" "$data/second" "${OUT:-$data}/$who.json"
	done
	failures=$failed
	LD_LIBRARY_PATH="$cuda" compare misuse-vendor "$here/misuse.txt" "$here/misuse-vendor" "$data/misused"
	failed=$failures # it is known to differ, and to die
fi
# Programs that we did not write, where the machine has them.
has() { python3 -c "import $1" > /dev/null 2>&1; }
export LD_PRELOAD="$here/lib/libcufile.so.0"
if has torch.cuda.gds; then
	show "torch_gds.py" python3 "$here/torch_gds.py" "$data"
fi
if has cuda.bindings.cufile; then
	show "cuda_python.py" python3 "$here/cuda_python.py"
else
	echo "cuda-python is not installed here"
fi
unset LD_PRELOAD

[ $failed = 0 ] && echo "all as expected" || echo "not all as expected"
exit $failed
