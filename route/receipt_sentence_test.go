package route_test

import (
	"testing"
	"time"

	"github.com/culvert-io/culvert/route"
)

func TestSentence(t *testing.T) {
	module := &route.Decline{Route: route.NVFS, Test: "kernel module", Evidence: "nvidia-fs is not loaded", Fix: "modprobe nvidia-fs"}
	aligned := &route.Decline{Route: route.NVFS, Test: "alignment", Evidence: "no whole block", Fix: "use whole blocks"}
	for _, c := range []struct {
		name             string
		r                route.Receipt
		sentence, advice string
	}{
		{
			"staged",
			route.Receipt{
				Dir: route.Read, Bytes: 64 << 20, By: route.ByRoute{route.Ring: 64 << 20}, Machine: route.RealMachine,
				Time: 1300 * time.Microsecond, Ceiling: 55.2e9, Declined: route.Declined{route.NVFS: module},
			},
			"read 64.0 MiB in 1.3 ms, 51.6 GB/s (94 % of the link), through pinned host memory (ring)",
			"not by nvfs: nvidia-fs is not loaded (fix: modprobe nvidia-fs)",
		},
		{
			"direct with an unaligned end",
			route.Receipt{
				Dir: route.Write, Bytes: 4106, By: route.ByRoute{route.NVFS: 4096, route.Host: 10}, Machine: route.SoftwareMachine,
				Time: 41060 * time.Nanosecond, Ceiling: 55e9, Arrival: route.ArrivalProved, Declined: route.Declined{route.NVFS: aligned},
			},
			"wrote 4.0 KiB in 41.1 µs, 100 MB/s, 4.0 KiB by DMA of the drive, past host memory (nvfs), 10 B through host memory (host), arrival proved, software machine",
			"",
		},
		{"nothing", route.Receipt{Dir: route.Read}, "read 0 B in 0 s, by no route", ""},
		{
			"remote",
			route.Receipt{Dir: route.Read, Bytes: 10, By: route.ByRoute{route.Host: 10}, Time: time.Second, Provider: "tcp", Retries: 2},
			"read 10 B in 1 s, 10 B/s, through host memory (host), 2 retries, provider=tcp", "",
		},
	} {
		if got := c.r.Sentence(); got != c.sentence {
			t.Errorf("%s: %q, want %q", c.name, got, c.sentence)
		}
		if got := c.r.Advice(); got != c.advice {
			t.Errorf("%s: advice %q, want %q", c.name, got, c.advice)
		}
	}
}
