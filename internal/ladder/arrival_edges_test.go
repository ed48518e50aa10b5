package ladder

import (
	"bytes"
	"context"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// otherGPU is a device that is another one than the device in it.
type otherGPU struct{ gpu.Device }

func (o otherGPU) Info() gpu.Info {
	i := o.Device.Info()
	i.UUID[0]++
	return i
}

// What was learned with one GPU does not hold for another: it has another way from the
// drive.
func TestEveryGPUHasATrial(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		l.v.trial = 1
		for _, dir := range []route.Dir{route.Read, route.Write, route.Read, route.Write} {
			if r, err := l.run(dir, 0, 0, 64<<10); err != nil || r.Route != l.id {
				t.Fatalf("%v, %v", &r, err)
			}
		}
		knows := func(v *prover, dir route.Dir) bool {
			op := Op{Dir: dir, Src: FileSource(l.file)}
			return !v.onTrial(l.id, &op, 0) && (dir == route.Read || v.known(l.id, dir, &op).proved.Load())
		}
		for _, dir := range []route.Dir{route.Read, route.Write} {
			for device, want := range map[gpu.Device]bool{l.v.dev: true, otherGPU{l.v.dev}: false} {
				v := newProver(device, tree{}, nil, nil)
				v.stacks, v.trial = l.v.stacks, 1
				if knows(v, dir) != want {
					t.Errorf("%v: GPU %v knows the stack: %v", dir, device.Info().UUID, !want)
				}
			}
		}
	})
}

// Of a batch on a new file one read is compared widely: each takes 1 MiB of host memory.
func TestFirstBatchOfAFile(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		ops, res := make([]Op, 4), make([]route.Receipt, 4)
		for i := range ops {
			ops[i] = Op{Src: FileSource(l.file), Off: int64(i) << 16, Mem: l.mem.Slice(uint64(i)<<16, 64<<10), Kind: gpu.KindDevice, Buf: always{}}
		}
		check(t, l.plan.Run(context.Background(), ops, res))
		for i := range res {
			want := route.ArrivalSampled
			if i == 0 {
				want = route.ArrivalProved
			}
			if res[i].Arrival != want {
				t.Errorf("read %d: %v, want %v", i, &res[i], want)
			}
		}
	})
}

// A transfer that is smaller than a place is compared in full, also after the trial.
func TestTinyTransfers(t *testing.T) {
	test := func(t *testing.T, l *liarLab) {
		for _, n := range []uint64{1, 7, 63} {
			for _, dir := range []route.Dir{route.Read, route.Write} {
				l.liar.next = honest
				if r, err := l.run(dir, 100, 0, n); err != nil || r.Route == l.id && r.Arrival != route.ArrivalProved {
					t.Errorf("%v of %d bytes: %v, %v", dir, n, &r, err)
				}
				l.liar.next = transformed
				if r, err := l.run(dir, 100, 0, n); err != nil || r.Route != route.Host {
					t.Errorf("%v of %d bytes, a lie: %v, %v", dir, n, &r, err)
				}
				if !bytes.Equal(l.gpuBytes(0, n), l.bytesOf(dir, 100, n)) {
					t.Errorf("%v: acknowledged %d wrong bytes", dir, n)
				}
				l.forget(false)
			}
		}
	}
	liarLabs(t, test)
	sourceLabs(t, test)
}

// A required read has its unaligned ends moved by the route, which can lie about them.
func TestUnalignedEndsOfARequiredRead(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		l.v.trial = trialTransfers
		l.onlyDirect()
		const off, n = 100, 5*4096 + 50
		bad := uint64(0)
		l.override(func(honest Route, ctx context.Context, ops []Op, res []route.Receipt) error {
			err := honest.Run(ctx, ops, res)
			b := l.gpuBytes(bad, 1)
			l.setGPU(bad, []byte{b[0] + 1})
			return err
		})
		for _, bad = range []uint64{0, n - 1} {
			if r, err := l.run(route.Read, off, 0, n); !isRequire(err) {
				t.Errorf("byte %d is wrong: %v, %v", bad, &r, err)
			}
			l.forget(true)
		}
	})
}
