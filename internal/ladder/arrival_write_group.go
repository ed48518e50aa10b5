package ladder

import (
	"context"

	"github.com/culvert-io/culvert/route"
)

// keptBytes is how much of what required writes overwrite is kept in host memory at a
// time: they are made and compared in pieces, and batches in groups, of so many bytes.
const keptBytes = 64 << 20

// writeGroups makes the writes of a batch in groups. Writes of a group do not overlap: one
// would be compared after the other has overwritten it.
func (v *prover) writeGroups(ctx context.Context, r Route, t *Traits, ops []Op, res []route.Receipt) (err error) {
	for i := 0; i < len(ops) && err == nil; {
		if ops[i].strict && ops[i].Mem.Len > v.keep {
			err = v.writePieces(ctx, r, t, &ops[i], &res[i])
			i++
			continue
		}
		var n int
		n, err = v.writeGroup(ctx, r, t, ops[i:], res[i:])
		i += n
	}
	return err
}

// group appends the ranges of the first writes that can be made together.
func (v *prover) group(ranges []fileRange, ops []Op) []fileRange {
	kept, end := uint64(0), int64(0)
	for i := range ops {
		o, next := &ops[i], fileRange{from: ops[i].Off, to: ops[i].end()}
		if f := v.fileOf(o); f != nil {
			next.id = f.id
		}
		kept += o.Mem.Len
		if i > 0 && (o.strict && kept > v.keep || next.from < end && overlapsAny(ranges, &next)) {
			break
		}
		ranges, end = append(ranges, next), max(end, next.to)
	}
	return ranges
}

// writePieces makes a required write that is too long to be kept. If a piece does not
// arrive, it is undone; those before it have arrived.
func (v *prover) writePieces(ctx context.Context, r Route, t *Traits, op *Op, rec *route.Receipt) error {
	piece, did := []Op{*op}, make([]route.Receipt, 1)
	for at := uint64(0); at < op.Mem.Len; at += piece[0].Mem.Len {
		piece[0].Off, piece[0].Mem = op.Off+int64(at), op.Mem.Slice(at, min(op.Mem.Len-at, v.keep))
		did[0] = route.Receipt{}
		_, err := v.writeGroup(ctx, r, t, piece, did)
		op.passed = piece[0].passed
		if at == 0 {
			*rec = did[0]
		} else {
			rec.Add(&did[0])
		}
		if err != nil || did[0].Bytes < int64(piece[0].Mem.Len) {
			return err
		}
	}
	return nil
}

// writeGroup makes the first writes that do not overlap, while no other is in flight to
// their ranges, and returns how many they are.
func (v *prover) writeGroup(ctx context.Context, r Route, t *Traits, ops []Op, res []route.Receipt) (n int, err error) {
	lock := &v.stacks.writing
	h := lock.get()
	h.ranges = v.group(h.ranges, ops)
	n, h.inStream = len(h.ranges), ops[0].InStream
	if err := lock.lock(ctx, h); err != nil {
		return n, err
	}
	defer lock.unlock(h)
	return n, v.write(ctx, r, t, ops[:n], res[:n])
}
