package route_test

import (
	"fmt"
	"time"

	"github.com/culvert-io/culvert/route"
)

func ExampleParse() {
	id, err := route.Parse("ring")
	fmt.Println(id, err)
	_, err = route.Parse("tunnel")
	fmt.Println(err)
	// Output:
	// ring <nil>
	// unknown route "tunnel" (routes: vendor, nvfs, p2pdma, nvme, rdma, bar, ring, mapped, host)
}

// A receipt prints as one line; as JSON it has the same fields.
func ExampleReceipt() {
	r := route.Receipt{Dir: route.Read, Route: route.Ring, Bytes: 1 << 20, Time: time.Millisecond}
	r.By[route.Ring] = r.Bytes
	r.Host = route.ByteCount{Bytes: r.Bytes, Evidence: route.Counted}
	r.Declined[route.NVFS] = &route.Decline{Route: route.NVFS, Test: "kernel module", Evidence: "/dev/nvidia-fs0: no such file or directory", Fix: "modprobe nvidia-fs"}
	fmt.Println(r)
	fmt.Println(r.Declined[route.NVFS])
	// Output:
	// read route=ring bytes=1048576 host_bytes=1048576(counted) time=1ms rate=1.049GB/s declined=nvfs:kernel-module
	// nvfs: kernel module: /dev/nvidia-fs0: no such file or directory (fix: modprobe nvidia-fs)
}

// A plan lists the usable routes of a file, best first.
func ExamplePlan_Require() {
	p := route.Plan{Uses: []route.Use{{Route: route.Bar, For: "small reads"}, {Route: route.Ring}}}
	fmt.Println(p.Usable(), p.Require(route.Ring))
	fmt.Println(p.Require(route.NVFS))
	// Output:
	// [bar ring] <nil>
	// required route nvfs is not available (best: bar)
}
