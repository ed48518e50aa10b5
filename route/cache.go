package route

import "github.com/culvert-io/culvert/internal/enum"

// A CacheMode says how reads over staged routes use the page cache. See
// docs/cache.md.
type CacheMode uint8

const (
	// CacheAuto follows the opener: a file opened without O_DIRECT stays in the page
	// cache once read, as long as it fits; one opened with O_DIRECT never fills it.
	CacheAuto  CacheMode = iota
	CacheKeep            // fill the page cache, whatever the size
	CacheAvoid           // read what is there, fill nothing
)

var cacheModes = [...]string{"auto", "keep", "avoid"}

func (m CacheMode) String() string { return enum.Name(cacheModes[:], m, "CacheMode(%d)") }

// ParseCacheMode is the inverse of String. The empty string is auto.
func ParseCacheMode(s string) (CacheMode, error) {
	if s == "" {
		return CacheAuto, nil
	}
	return enum.Parse("page cache mode", cacheModes[:], CacheAuto, s)
}

// CacheUse counts the bytes of reads over staged routes by what they did to the page
// cache. Direct routes do not use it and count nothing.
type CacheUse struct {
	Hit      int64 `json:"hit"`      // were there
	Filled   int64 `json:"filled"`   // were read into it
	Bypassed int64 `json:"bypassed"` // went around it
	// Unasked bytes went through it without a check whether they were there: small
	// reads, for which the check takes too long, and files for which the kernel
	// forbids it.
	Unasked int64  `json:"unasked,omitempty"`
	Why     string `json:"why,omitempty"` // the last bytes that went around it did so
}

// Add adds another count.
func (u *CacheUse) Add(o *CacheUse) {
	u.Hit += o.Hit
	u.Filled += o.Filled
	u.Bypassed += o.Bypassed
	u.Unasked += o.Unasked
	if o.Why != "" {
		u.Why = o.Why
	}
}
