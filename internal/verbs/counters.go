package verbs

import "sync/atomic"

type counters struct {
	sentBytes, receivedBytes   atomic.Uint64
	sentFrames, receivedFrames atomic.Uint64
	duplicates                 atomic.Uint64
	rnr                        atomic.Uint64
	rejected                   atomic.Uint64
	timeouts                   atomic.Uint64
	retriesExceeded            atomic.Uint64
	refused                    atomic.Uint64
}

// Counters are what a device counts, by the names of sysfs: those of the port's
// counters directory, then those of hw_counters.
type Counters struct {
	SentBytes, ReceivedBytes   uint64 // payload; port_xmit_data and port_rcv_data count 4 bytes
	SentFrames, ReceivedFrames uint64 // port_xmit_packets, port_rcv_packets
	Duplicates                 uint64 // duplicate_request
	NotReady                   uint64 // rnr_nak_retry_err: requests that found no receive
	Rejected                   uint64 // resp_remote_access_errors: requests of peers that failed the checks
	Timeouts                   uint64 // local_ack_timeout_err
	RetriesExceeded            uint64 // req_transport_retries_exceeded
	Refused                    uint64 // handshakes that failed
}

// Counters returns the counters.
func (d *Device) Counters() Counters {
	c := &d.counters
	return Counters{
		c.sentBytes.Load(), c.receivedBytes.Load(), c.sentFrames.Load(), c.receivedFrames.Load(), c.duplicates.Load(),
		c.rnr.Load(), c.rejected.Load(), c.timeouts.Load(), c.retriesExceeded.Load(), c.refused.Load(),
	}
}

// Add returns the sums.
func (c Counters) Add(d Counters) Counters {
	return Counters{
		c.SentBytes + d.SentBytes, c.ReceivedBytes + d.ReceivedBytes, c.SentFrames + d.SentFrames, c.ReceivedFrames + d.ReceivedFrames,
		c.Duplicates + d.Duplicates, c.NotReady + d.NotReady, c.Rejected + d.Rejected, c.Timeouts + d.Timeouts,
		c.RetriesExceeded + d.RetriesExceeded, c.Refused + d.Refused,
	}
}
