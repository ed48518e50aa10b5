package storage

import "github.com/culvert-io/culvert/route"

// This file is the page-cache policy: one pure function over plain data. docs/cache.md
// explains it.

// A Path is how a range of a file is read over a staged route.
type Path uint8

const (
	Cached Path = iota // through the page cache, which has it
	Fill               // through the page cache, which does not have all of it: ask for it ahead, in parallel
	Around             // with O_DIRECT
)

// Why bytes went around the page cache, as receipts say it.
const (
	NotBypassed  = ""
	OpenedDirect = "opened with O_DIRECT"
	AskedToAvoid = "asked to avoid the page cache"
	TooLarge     = "larger than the available memory"
	FastStorage  = "storage is faster than filling the page cache" // and this is the first pass
	Measuring    = "measuring the storage"                         // few bytes, to learn its rate without the cache
)

// A Situation is all that the policy knows about a range that is about to be read.
type Situation struct {
	Mode   route.CacheMode
	Direct bool // the caller opened the file with O_DIRECT
	// CanBypass reports a descriptor with O_DIRECT. Without one every read goes through
	// the page cache.
	CanBypass bool

	// Residency is what the page cache has of the range. Known is false if the kernel
	// does not say: the file belongs to another user, or a filter forbids the call.
	Known bool
	Residency
	// InFront reports that the cache can only have the range because the kernel reads
	// ahead of this stream.
	InFront bool

	// Again reports that something of the file that went around the cache is read again,
	// perhaps by another one who opened it.
	Again bool

	Stream    int64 // bytes that the caller is going to read
	Read      int64 // of these, read so far
	Filled    int64 // and of these, read into the cache
	Available int64 // memory for the page cache, of machine and control group; -1 if unknown

	// Rates of all threads together, in bytes per second; 0 if unknown.
	DirectRate, FillRate float64
}

const (
	// availableShare is the fraction of the available memory that a stream may take:
	// other programs need the rest.
	availableShare = 0.75
	// outrun is how much faster than filling the storage must be for a first pass to go
	// around the cache. A pass that fills then takes less than twice as long as one that
	// does not, and is worth it if the file is read again: the second pass would be as slow.
	outrun = 2.0
	// sampleShare is the fraction of a stream that fills the cache in any case, up to
	// comparedLen: how long that takes changes with the memory that is free.
	sampleShare = 1.0 / 64
)

// Path chooses how to read the range, and says why if that is around the cache.
func (s *Situation) Path() (Path, string) {
	all := s.Known && s.Cached >= s.Pages
	switch {
	case all && !(s.InFront && s.passesBy()):
		return Cached, NotBypassed
	case !s.CanBypass:
		return Fill, NotBypassed
	case s.Direct:
		return Around, OpenedDirect
	case s.Mode == route.CacheAvoid:
		return Around, AskedToAvoid
	case s.Known && s.Dirty:
		// They would have to be written out before O_DIRECT could read the range.
		return Fill, NotBypassed
	case s.Mode == route.CacheKeep:
		return Fill, NotBypassed
	case !s.fits():
		return Around, TooLarge
	case s.passesBy():
		return Around, FastStorage
	}
	return Fill, NotBypassed
}

// fits reports whether the stream fits into the available memory. If that is unknown,
// the kernel's page replacement decides what stays.
func (s *Situation) fits() bool {
	return s.Available < 0 || float64(s.Stream) <= availableShare*float64(s.Available)
}

// passesBy reports that the first pass goes around the cache, because the storage is
// faster than filling it. A file that is read again is worth filling nevertheless.
func (s *Situation) passesBy() bool {
	return s.CanBypass && s.Mode == route.CacheAuto && s.Read < s.Stream && !s.Again && s.Filled >= s.sample() &&
		s.DirectRate > 0 && s.FillRate > 0 && s.DirectRate >= outrun*s.FillRate
}

// sample is how many bytes of a stream fill the cache in any case.
func (s *Situation) sample() int64 {
	return min(int64(sampleShare*float64(s.Stream)), comparedLen)
}
