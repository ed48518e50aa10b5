package transfer

import (
	"fmt"
	"strings"
	"time"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/route"
)

// A TreeResult describes the copy of a directory.
type TreeResult struct {
	Source   string         `json:"source"`
	Dest     string         `json:"destination"`
	GPU      int            `json:"gpu"`
	Files    int            `json:"files"` // copied by this run
	Done     int            `json:"done"`  // by earlier ones
	Links    int            `json:"links"` // copied as links
	Hard     int            `json:"hard_links,omitempty"`
	Skipped  []TreeSkip     `json:"skipped"` // not copied
	Same     int            `json:"unchanged,omitempty"`
	Bytes    int64          `json:"bytes"`
	Resumed  int64          `json:"resumed,omitempty"` // bytes of copied files that an earlier run had copied
	Holes    int64          `json:"holes,omitempty"`   // bytes that are holes, and not moved
	Seconds  float64        `json:"seconds"`
	Read     *route.Receipt `json:"read"`
	Write    *route.Receipt `json:"write"` // nil if the destination is GPU memory
	Verified bool           `json:"verified"`
}

// Fields is the receipts with every field, one line per direction.
func (r *TreeResult) Fields() string {
	if r.Write == nil {
		return r.Read.String()
	}
	return fmt.Sprintf("%v\n%v", r.Read, r.Write)
}

// String prints a sentence per direction, what was skipped, and totals.
func (r *TreeResult) String() string {
	var b strings.Builder
	if r.Files > 0 {
		b.WriteString(sentences(r.Read, r.Write))
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "skipped %s: %s\n", human.Name(s.Path), s.Why)
	}
	fmt.Fprintf(&b, "copied %s to %s: %s", human.Name(r.Source), human.Name(r.Dest), strings.Join(r.totals(), ", "))
	return b.String()
}

// totals names the parts of the copy, without those that it does not have.
func (r *TreeResult) totals() []string {
	list := []string{human.Count(r.Files, "file")}
	if r.Links > 0 {
		list = append(list, human.Count(r.Links, "symbolic link"))
	}
	if r.Hard > 0 {
		list = append(list, human.Count(r.Hard, "hard link"))
	}
	size := human.Size(r.Bytes) + " in " + human.Duration(time.Duration(r.Seconds*float64(time.Second)))
	if r.Bytes > 0 {
		size += ", " + human.Speed(float64(r.Bytes)/r.Seconds)
	}
	list = append(list, size)
	for _, extra := range []struct {
		bytes int64
		what  string
	}{{r.Holes, "of holes"}, {r.Resumed, "resumed"}} {
		if extra.bytes > 0 {
			list = append(list, human.Size(extra.bytes)+" "+extra.what)
		}
	}
	if r.Done > 0 {
		list = append(list, human.Count(r.Done, "file")+" done before")
	}
	if r.Same > 0 {
		list = append(list, human.Count(r.Same, "file")+" unchanged")
	}
	if r.Verified {
		list = append(list, "verified")
	}
	return list
}

// add counts a copied file. One of a pack may have its receipts with another.
func (r *TreeResult) add(one *Result) {
	r.Files++
	r.Bytes += one.Bytes
	r.Resumed += one.Resumed
	r.Holes += one.Holes
	if one.Read != nil {
		r.Read.Add(one.Read)
	}
	if r.Write != nil && one.Write != nil {
		r.Write.Add(one.Write)
	}
}

// took ends the copy. The times of its files overlap, so their sum is none that passed.
func (r *TreeResult) took(t time.Duration) {
	r.Seconds = t.Seconds()
	for _, rec := range []*route.Receipt{r.Read, r.Write} {
		if rec != nil {
			rec.Time = t
		}
	}
}

// A StoppedError means that a copy of a directory is incomplete. A rerun resumes.
type StoppedError struct {
	Files, Of int
	Err       error
}

func (e *StoppedError) Error() string {
	return fmt.Sprintf("%d of %d files are complete: %v", e.Files, e.Of, e.Err)
}

func (e *StoppedError) Unwrap() error { return e.Err }
