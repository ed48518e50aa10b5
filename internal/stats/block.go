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

// Add counts a transfer in a shard, which may be any number.
func (b *Block) Add(shard uint32, t *Transfer) {
	s := &b.shards[shard%Shards]
	i := index(t.Write, t.Route)
	s[opsAt+i].Add(1)
	if t.Bytes != 0 {
		s[bytesAt+i].Add(t.Bytes)
	}
	if t.Host != 0 {
		s[hostAt].Add(t.Host)
	}
	if t.Retries != 0 {
		s[retriesAt].Add(int64(t.Retries))
	}
	if t.Failed {
		s[errorsAt].Add(1)
	}
	s[nanosAt].Add(int64(t.Time))
}

// AddBytes counts bytes of a transfer that another route moved than most of them.
func (b *Block) AddBytes(shard uint32, write bool, route int, n int64) {
	b.shards[shard%Shards][bytesAt+index(write, route)].Add(n)
}

// direction is 0 for reads and 1 for writes.
func direction(write bool) int {
	if write {
		return 1
	}
	return 0
}

// index is the position of a direction and route among those of one kind.
func index(write bool, route int) int { return direction(write)*Routes + int(uint(route)%Routes) }

// counts are the sums of a block's shards, by position.
type counts [counters]int64

func (c *counts) add(b *Block) {
	for i := range b.shards {
		for k := range c {
			c[k] += b.shards[i][k].Load()
		}
	}
}

// moveTo adds the block's counts to another one and clears them. No transfer may be
// added at the same time.
func (b *Block) moveTo(to *Block) {
	var c counts
	c.add(b)
	for k := range c {
		to.shards[0][k].Add(c[k])
		for i := range b.shards {
			b.shards[i][k].Store(0)
		}
	}
}

// Totals are the sum of a block.
type Totals struct {
	Ops     [2][Routes]int64 // by direction and route
	Bytes   [2][Routes]int64
	Host    int64
	Errors  int64
	Retries int64
	Time    time.Duration // summed over transfers, many of which run at a time
}

// Totals adds the shards up.
func (b *Block) Totals() Totals {
	var c counts
	c.add(b)
	return c.totals()
}

func (c *counts) totals() Totals {
	t := Totals{Host: c[hostAt], Errors: c[errorsAt], Retries: c[retriesAt], Time: time.Duration(c[nanosAt])}
	for dir := range t.Ops {
		copy(t.Ops[dir][:], c[opsAt+dir*Routes:])
		copy(t.Bytes[dir][:], c[bytesAt+dir*Routes:])
	}
	return t
}

// Add adds what another block has.
func (t *Totals) Add(o *Totals) {
	for dir := range t.Ops {
		for r := range t.Ops[dir] {
			t.Ops[dir][r] += o.Ops[dir][r]
			t.Bytes[dir][r] += o.Bytes[dir][r]
		}
	}
	t.Host, t.Errors, t.Retries, t.Time = t.Host+o.Host, t.Errors+o.Errors, t.Retries+o.Retries, t.Time+o.Time
}

// Subtract takes away what another block has.
func (t *Totals) Subtract(o *Totals) {
	for dir := range t.Ops {
		for r := range t.Ops[dir] {
			t.Ops[dir][r] -= o.Ops[dir][r]
			t.Bytes[dir][r] -= o.Bytes[dir][r]
		}
	}
	t.Host, t.Errors, t.Retries, t.Time = t.Host-o.Host, t.Errors-o.Errors, t.Retries-o.Retries, t.Time-o.Time
}

// Sum returns the operations and bytes of a direction, over all routes.
func (t *Totals) Sum(write bool) (ops, bytes int64) {
	dir := direction(write)
	for r := range t.Ops[dir] {
		ops += t.Ops[dir][r]
		bytes += t.Bytes[dir][r]
	}
	return ops, bytes
}
