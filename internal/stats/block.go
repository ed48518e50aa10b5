package stats

import "time"

// A Transfer is what is added to a block.
type Transfer struct {
	Write   bool
	Route   int   // that moved most of the bytes
	Bytes   int64 // that it moved
	Host    int64 // of the whole transfer, through host memory
	Retries int
	Time    time.Duration
	Failed  bool
}

// Add counts a transfer in a shard, any number.
func (b *Block) Add(shard uint32, t *Transfer) {
	s := &b.shards[shard%Shards]
	dir := direction(t.Write)
	r := uint(t.Route) % Routes
	s.ops[dir][r].Add(1)
	if t.Bytes != 0 {
		s.bytes[dir][r].Add(t.Bytes)
	}
	if t.Host != 0 {
		s.host.Add(t.Host)
	}
	if t.Retries != 0 {
		s.retries.Add(int64(t.Retries))
	}
	if t.Failed {
		s.errors.Add(1)
	}
	s.nanos.Add(int64(t.Time))
}

// direction is the index of reads and writes.
func direction(write bool) int {
	if write {
		return 1
	}
	return 0
}

// AddBytes counts bytes of a transfer that went by another route than the most.
func (b *Block) AddBytes(shard uint32, write bool, route int, n int64) {
	dir := direction(write)
	b.shards[shard%Shards].bytes[dir][uint(route)%Routes].Add(n)
}

// Totals are the sum of a block.
type Totals struct {
	Ops     [2][Routes]int64 // by direction and route
	Bytes   [2][Routes]int64
	Host    int64
	Errors  int64
	Retries int64
	Time    time.Duration // summed over transfers, of which many run at a time
}

// Totals adds the shards up.
func (b *Block) Totals() (t Totals) {
	for i := range b.shards {
		s := &b.shards[i]
		for dir := range s.ops {
			for r := range s.ops[dir] {
				t.Ops[dir][r] += s.ops[dir][r].Load()
				t.Bytes[dir][r] += s.bytes[dir][r].Load()
			}
		}
		t.Host += s.host.Load()
		t.Errors += s.errors.Load()
		t.Retries += s.retries.Load()
		t.Time += time.Duration(s.nanos.Load())
	}
	return t
}

// Sum is over all routes: operations and bytes of a direction.
func (t *Totals) Sum(write bool) (ops, bytes int64) {
	dir := direction(write)
	for r := range t.Ops[dir] {
		ops += t.Ops[dir][r]
		bytes += t.Bytes[dir][r]
	}
	return ops, bytes
}

// add is the sum of two totals.
func (t *Totals) add(o *Totals) {
	for dir := range t.Ops {
		for r := range t.Ops[dir] {
			t.Ops[dir][r] += o.Ops[dir][r]
			t.Bytes[dir][r] += o.Bytes[dir][r]
		}
	}
	t.Host += o.Host
	t.Errors += o.Errors
	t.Retries += o.Retries
	t.Time += o.Time
}

// absorb adds another block's sums and clears it. Nobody may add to it.
func (b *Block) absorb(o *Block) {
	t := o.Totals()
	s := &b.shards[0]
	for dir := range t.Ops {
		for r := range t.Ops[dir] {
			s.ops[dir][r].Add(t.Ops[dir][r])
			s.bytes[dir][r].Add(t.Bytes[dir][r])
		}
	}
	s.host.Add(t.Host)
	s.errors.Add(t.Errors)
	s.retries.Add(t.Retries)
	s.nanos.Add(int64(t.Time))
	o.clear()
}

func (b *Block) clear() {
	for i := range b.shards {
		s := &b.shards[i]
		for dir := range s.ops {
			for r := range s.ops[dir] {
				s.ops[dir][r].Store(0)
				s.bytes[dir][r].Store(0)
			}
		}
		s.host.Store(0)
		s.errors.Store(0)
		s.retries.Store(0)
		s.nanos.Store(0)
	}
}
