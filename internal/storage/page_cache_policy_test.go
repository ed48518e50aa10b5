package storage

import (
	"testing"

	"github.com/culvert-io/culvert/route"
)

const gib = int64(1) << 30

// TestPolicy is docs/cache.md as a table.
func TestPolicy(t *testing.T) {
	cold, half, warm := Residency{Pages: 1024}, Residency{Pages: 1024, Cached: 512}, Residency{Pages: 1024, Cached: 1024}
	dirty := Residency{Pages: 1024, Cached: 3, Dirty: true}
	// A file of 4 GiB, opened plainly, on a machine with room for it.
	plain := Situation{CanBypass: true, Known: true, Residency: cold, Stream: 4 * gib, Available: 100 * gib}
	outrun := func(s Situation) Situation {
		s.DirectRate, s.FillRate, s.Filled = 2e9, 1e9, gib
		return s
	}
	for _, tt := range []struct {
		name string
		edit func(*Situation)
		path Path
		why  string
	}{
		{"cold", func(*Situation) {}, Fill, ""},
		{"warm", func(s *Situation) { s.Residency = warm }, Cached, ""},
		{"half warm", func(s *Situation) { s.Residency = half }, Fill, ""},
		{"nobody knows how much memory there is", func(s *Situation) { s.Available = -1 }, Fill, ""},
		{"no memory at all", func(s *Situation) { s.Available = 0 }, Around, TooLarge},

		{"larger than the memory", func(s *Situation) { s.Stream = 200 * gib }, Around, TooLarge},
		{"larger than what others leave", func(s *Situation) { s.Stream = 76 * gib }, Around, TooLarge},
		{"just fits", func(s *Situation) { s.Stream = 75 * gib }, Fill, ""},
		{"larger, but this part is there", func(s *Situation) { s.Stream, s.Residency = 200*gib, warm }, Cached, ""},
		{"larger, but being written", func(s *Situation) { s.Stream, s.Residency = 200*gib, dirty }, Fill, ""},
		{"larger, keep", func(s *Situation) { s.Stream, s.Mode = 200*gib, route.CacheKeep }, Fill, ""},
		{"larger, no O_DIRECT", func(s *Situation) { s.Stream, s.CanBypass = 200*gib, false }, Fill, ""},

		{"storage outruns filling, first pass", func(s *Situation) { *s = outrun(*s) }, Around, FastStorage},
		{"the same, but it is read again before the pass ends", func(s *Situation) { *s = outrun(*s); s.Again = true }, Fill, ""},
		{"its first bytes", func(s *Situation) { *s = outrun(*s); s.Filled = 63 * mib }, Fill, ""},
		{"the first bytes of a small file", func(s *Situation) { *s = outrun(*s); s.Stream, s.Filled = 64*mib, mib-1 }, Fill, ""},
		{"a small file", func(s *Situation) { *s = outrun(*s); s.Stream, s.Filled = 64*mib, mib }, Around, FastStorage},
		{"second pass", func(s *Situation) { *s = outrun(*s); s.Read = 4 * gib }, Fill, ""},
		{"keep", func(s *Situation) { *s = outrun(*s); s.Mode = route.CacheKeep }, Fill, ""},
		{"less than twice as fast", func(s *Situation) { *s = outrun(*s); s.DirectRate = 1.9e9 }, Fill, ""},
		{"one rate is unknown", func(s *Situation) { *s = outrun(*s); s.FillRate = 0 }, Fill, ""},
		{"warm, and filling is slow", func(s *Situation) { *s = outrun(*s); s.Residency = warm }, Cached, ""},
		{"the kernel's readahead, and filling is slow", func(s *Situation) { *s = outrun(*s); s.Residency, s.InFront = warm, true }, Around, FastStorage},
		{"the same, second pass", func(s *Situation) { *s = outrun(*s); s.Residency, s.InFront, s.Read = warm, true, 4*gib }, Cached, ""},
		{"the kernel's readahead", func(s *Situation) { s.Residency, s.InFront = warm, true }, Cached, ""},

		{"opened with O_DIRECT", func(s *Situation) { s.Direct = true }, Around, OpenedDirect},
		{"opened with O_DIRECT, warm", func(s *Situation) { s.Direct, s.Residency = true, warm }, Cached, ""},
		{"opened with O_DIRECT, half warm", func(s *Situation) { s.Direct, s.Residency = true, half }, Around, OpenedDirect},
		{"opened with O_DIRECT, being written", func(s *Situation) { s.Direct, s.Residency = true, dirty }, Around, OpenedDirect},
		{"opened with O_DIRECT, keep", func(s *Situation) { s.Direct, s.Mode = true, route.CacheKeep }, Around, OpenedDirect},
		{"avoid", func(s *Situation) { s.Mode = route.CacheAvoid }, Around, AskedToAvoid},
		{"avoid, warm", func(s *Situation) { s.Mode, s.Residency = route.CacheAvoid, warm }, Cached, ""},

		// A model that belongs to root, read by somebody else: EPERM.
		{"not told", func(s *Situation) { s.Known, s.Residency = false, Residency{} }, Fill, ""},
		{"not told, O_DIRECT", func(s *Situation) { s.Known, s.Direct = false, true }, Around, OpenedDirect},
		{"not told, larger", func(s *Situation) { s.Known, s.Stream = false, 200*gib }, Around, TooLarge},
		// FUSE with direct_io: no page ever stays, and open refuses O_DIRECT on old kernels.
		{"fuse without O_DIRECT", func(s *Situation) { s.CanBypass = false }, Fill, ""},
		{"fuse without O_DIRECT, avoid", func(s *Situation) { s.CanBypass, s.Mode = false, route.CacheAvoid }, Fill, ""},
		// NFS: O_DIRECT bypasses the cache of the client only; that is what avoid asks for.
		{"nfs, avoid", func(s *Situation) { s.Known, s.Mode = false, route.CacheAvoid }, Around, AskedToAvoid},
		{"nfs, slow without the cache", func(s *Situation) { s.Known, s.DirectRate, s.FillRate = false, 1e8, 1e9 }, Fill, ""},
	} {
		s := plain
		tt.edit(&s)
		if path, why := s.Path(); path != tt.path || why != tt.why {
			t.Errorf("%s: path %d (%v), want %d (%v)", tt.name, path, why, tt.path, tt.why)
		}
	}
}

// TestPolicyRules checks, for every combination, what holds whatever else is the case.
func TestPolicyRules(t *testing.T) {
	flags := []bool{false, true}
	for _, direct := range flags {
		for _, can := range flags {
			for _, known := range flags {
				for _, dirty := range flags {
					for _, cached := range []int64{0, 1, 512, 1023, 1024} {
						for _, available := range []int64{-1, 0, 5 * gib, 6 * gib} {
							for mode := route.CacheAuto; mode <= route.CacheAvoid; mode++ {
								s := Situation{
									Mode: mode, Direct: direct, CanBypass: can, Known: known, Residency: Residency{1024, cached, dirty},
									Stream: 4 * gib, Available: available,
								}
								checkRules(t, &s)
							}
						}
					}
				}
			}
		}
	}
}

func checkRules(t *testing.T, s *Situation) {
	t.Helper()
	path, why := s.Path()
	if path == Around != (why != NotBypassed) {
		t.Errorf("%+v: path %d without or with the reason %v", *s, path, why)
	}
	if path == Around && !s.CanBypass {
		t.Errorf("%+v: around the cache without O_DIRECT", *s)
	}
	if path == Cached && !(s.Known && s.Cached == s.Pages) {
		t.Errorf("%+v: taken for cached", *s)
	}
	if path == Fill && s.CanBypass && (s.Direct || s.Mode == route.CacheAvoid) {
		t.Errorf("%+v: fills the cache", *s)
	}
	if path == Fill && s.CanBypass && s.Mode == route.CacheAuto && s.Available == 5*gib && !s.Dirty {
		t.Errorf("%+v: fills a cache that it does not fit into", *s)
	}
}
