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
}

// String formats it as fields of a receipt.
func (o Origin) String() string {
	text := fmt.Sprintf("store=%s origin_bytes=%d requests=%d request_retries=%d hedges=%d connections=%d",
		o.Store, o.Bytes, o.Requests, o.Retries, o.Hedges, o.Connections)
	if o.Checksum != "" {
		text += " store_checksum=" + o.Checksum
	}
	return text
}
