package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/rdma"
)

// childEnv has the address of the parent in a process that is the other end of a test.
const childEnv = "CULVERT_TEST_RDMA_PARENT"

func TestMain(m *testing.M) {
	if addr := os.Getenv(childEnv); addr != "" {
		exit(child(addr))
	}
	if os.Getenv(namespaceEnv) == "far" {
		exit(farProcess())
	}
	goleak.VerifyTestMain(m)
}

// exit ends a process that is the other end of a test.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child lets the parent write into its memory, and receives plain TCP, too.
func child(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	plain, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	return errors.Join(withChildNode(conn, func() error { return sink(plain) }), conn.Close(), plain.Close())
}

func withChildNode(conn net.Conn, use func() error) error {
	p, err := New(Config{})
	if err != nil {
		return err
	}
	d, err := p.Open("")
	if err != nil {
		return err
	}
	pd, err := d.AllocPD()
	if err != nil {
		return err
	}
	cq, err := d.CreateCQ(16)
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return err
	}
	mr, err := pd.Register(rdma.Host(make([]byte, nodeSize)), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	if err != nil {
		return err
	}
	key := binary.BigEndian.AppendUint64(nil, mr.Addr())
	key = binary.BigEndian.AppendUint32(key, mr.RKey())
	if _, err := rdma.Establish(context.Background(), conn, d, qp, rdma.Options{Data: key}); err != nil {
		return err
	}
	err = use()
	for _, c := range []io.Closer{qp, mr, cq, pd, d, p} {
		err = errors.Join(err, c.Close())
	}
	return err
}

// sink reads messages (a size and so many bytes, count times) and confirms each series.
func sink(c net.Conn) error {
	buf := make([]byte, nodeSize)
	for {
		var h [8]byte
		if _, err := io.ReadFull(c, h[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		size, count := binary.BigEndian.Uint32(h[:]), binary.BigEndian.Uint32(h[4:])
		for range count {
			if _, err := io.ReadFull(c, buf[:size]); err != nil {
				return err
			}
		}
		if _, err := c.Write(h[:1]); err != nil {
			return err
		}
	}
}

// A remote is another process, connected by verbs and by plain TCP.
type remote struct {
	*node
	plain net.Conn
	key   rdma.Key
	cmd   *exec.Cmd
	conn  net.Conn
	p     *Provider
}

func startRemote(t testing.TB) *remote {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	r := &remote{cmd: exec.Command(os.Args[0], "-test.run=^$")}
	r.cmd.Env = append(os.Environ(), childEnv+"="+lis.Addr().String())
	r.cmd.Stderr = os.Stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if r.conn, err = lis.Accept(); err != nil {
		t.Fatal(err)
	}
	if r.plain, err = lis.Accept(); err != nil {
		t.Fatal(err)
	}
	if r.p, err = New(Config{}); err != nil {
		t.Fatal(err)
	}
	d, err := r.p.Open("")
	if err != nil {
		t.Fatal(err)
	}
	r.node = newNode(t, d)
	peer, err := rdma.Establish(context.Background(), r.conn, d, r.qp, rdma.Options{})
	r.ok(err)
	r.key = rdma.Key{Addr: binary.BigEndian.Uint64(peer.Data), RKey: binary.BigEndian.Uint32(peer.Data[8:]), Len: nodeSize}
	return r
}

func (r *remote) close() {
	r.t.Helper()
	r.ok(r.plain.Close())
	r.ok(r.conn.Close())
	r.node.close()
	r.ok(r.p.Close())
	r.ok(r.cmd.Wait())
}

// write writes count messages, with up to depth in flight.
func (r *remote) write(size uint32, count, depth int) {
	wr := [1]rdma.SendWR{{Op: rdma.OpWrite, Flags: rdma.Signaled, SGE: []rdma.SGE{rdma.Local(r.mr, 0, size)}, RemoteAddr: r.key.Addr, RKey: r.key.RKey}}
	var wcs [64]rdma.WC
	for posted, done := 0, 0; done < count; {
		for ; posted < count && posted-done < depth; posted++ {
			_, err := r.qp.PostSend(wr[:])
			r.ok(err)
		}
		n, err := rdma.Await(context.Background(), r.cq, wcs[:])
		r.ok(err)
		for _, wc := range wcs[:n] {
			r.ok(wc.Err())
		}
		done += n
	}
}

// send sends count messages over plain TCP, and waits until they were read.
func (r *remote) send(size uint32, count int) {
	var h [8]byte
	binary.BigEndian.PutUint32(h[:], size)
	binary.BigEndian.PutUint32(h[4:], uint32(count))
	if count == 1 {
		_, err := r.plain.Write(append(h[:], r.buf[:size]...))
		r.ok(err)
	} else {
		_, err := r.plain.Write(h[:])
		r.ok(err)
		for range count {
			_, err := r.plain.Write(r.buf[:size])
			r.ok(err)
		}
	}
	_, err := io.ReadFull(r.plain, h[:1])
	r.ok(err)
}

// Two processes: what one writes, it reads back from the other.
func TestTwoProcesses(t *testing.T) {
	r := startRemote(t)
	for i := range r.buf[:1<<20] {
		r.buf[i] = byte(i * 13)
	}
	r.write(1<<20, 1, 1)
	r.ok(rdma.Post(r.qp, rdma.SendWR{
		ID: 9, Op: rdma.OpRead, Flags: rdma.Signaled, SGE: []rdma.SGE{rdma.Local(r.mr, 2<<20, 1<<20)}, RemoteAddr: r.key.Addr, RKey: r.key.RKey,
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := rdma.One(ctx, r.cq)
	r.ok(err)
	if i := differs(r.buf[2<<20:3<<20], r.buf[:1<<20]); i >= 0 {
		t.Errorf("byte %d differs", i)
	}
	r.close()
}

// A killed peer is a retry that is exceeded.
func TestKilledPeer(t *testing.T) {
	r := startRemote(t)
	r.ok(r.cmd.Process.Kill())
	_ = r.cmd.Wait() // killed
	r.ok(r.qp.Modify(rdma.QPAttr{Timeout: 10, RetryCount: 1}, rdma.MaskTimeout|rdma.MaskRetryCount))
	r.ok(rdma.Post(r.qp, rdma.SendWR{ID: 4, Op: rdma.OpWrite, Flags: rdma.Signaled, SGE: []rdma.SGE{rdma.Local(r.mr, 0, 8)}, RemoteAddr: r.key.Addr, RKey: r.key.RKey}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := rdma.One(ctx, r.cq); !errors.Is(err, rdma.RetryExcErr) {
		t.Errorf("a write to a killed process: %v", err)
	}
	r.ok(r.plain.Close())
	r.ok(r.conn.Close())
	r.node.close()
	r.ok(r.p.Close())
}

// benchAgainst compares series of writes with the same bytes over plain TCP, in turn.
func benchAgainst(b *testing.B, size uint32, count, depth int) {
	r := startRemote(b)
	defer r.close()
	r.write(size, count, depth) // warm
	if depth == 1 {
		r.send(size, 1)
	} else {
		r.send(size, count)
	}
	b.ResetTimer()
	var ratios []float64
	ours, base := time.Duration(1<<62), time.Duration(1<<62)
	for range min(max(b.N, 5), 15) {
		start := time.Now()
		r.write(size, count, depth)
		w := time.Since(start)
		start = time.Now()
		if depth == 1 {
			for range count {
				r.send(size, 1)
			}
		} else {
			r.send(size, count)
		}
		p := time.Since(start)
		ratios = append(ratios, float64(p)/float64(w))
		ours, base = min(ours, w), min(base, p)
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(float64(ours)/float64(count), "ours-ns")
	b.ReportMetric(float64(base)/float64(count), "base-ns")
	b.ReportMetric(float64(size)*float64(count)/float64(ours), "GB/s")
}

func BenchmarkWrite1M(b *testing.B)  { benchAgainst(b, 1<<20, 256, 16) }
func BenchmarkWrite64K(b *testing.B) { benchAgainst(b, 64<<10, 1024, 16) }

// One write after another, against a message of plain TCP and its answer.
func BenchmarkWrite8B(b *testing.B) { benchAgainst(b, 8, 500, 1) }
