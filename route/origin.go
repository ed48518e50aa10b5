package route

import (
	"cmp"
	"fmt"
)

// An Origin is what a transfer took from an object store or a web server, or put
// there.
type Origin struct {
	Store       string `json:"store"`              // scheme and endpoint
	Bytes       int64  `json:"bytes"`              // on the wire, with those that were thrown away
	Requests    int64  `json:"requests"`           // with retries and hedges
	Retries     int64  `json:"retries"`            // made after a failure
	Hedges      int64  `json:"hedges"`             // made because another was slow
	Connections int64  `json:"connections"`        // that were made
	Checksum    string `json:"checksum,omitempty"` // of the store, that all bytes were compared with
	// Unconditional means that the store has no conditional writes: if another writer
	// ended at the same time, what it wrote was overwritten without an error.
	Unconditional bool `json:"unconditional,omitempty"`
}

// Add adds another transfer.
func (o *Origin) Add(p *Origin) {
	o.Store = cmp.Or(p.Store, o.Store)
	o.Bytes += p.Bytes
	o.Requests += p.Requests
	o.Retries += p.Retries
	o.Hedges += p.Hedges
	o.Connections += p.Connections
	o.Checksum = cmp.Or(p.Checksum, o.Checksum)
	o.Unconditional = o.Unconditional || p.Unconditional
}

// Warning says what a user must know of the store; "" if there is nothing.
func (o Origin) Warning() string {
	if !o.Unconditional {
		return ""
	}
	return "the store has no conditional writes: two writers of the same object at the same time overwrite each other"
}

// String formats it as fields of a receipt.
func (o Origin) String() string {
	text := fmt.Sprintf("store=%s origin_bytes=%d requests=%d request_retries=%d hedges=%d connections=%d",
		o.Store, o.Bytes, o.Requests, o.Retries, o.Hedges, o.Connections)
	if o.Checksum != "" {
		text += " store_checksum=" + o.Checksum
	}
	if o.Unconditional {
		text += " conditional_writes=no"
	}
	return text
}
