package fabrics

import (
	"bytes"
	"errors"
	"testing"

	nvme "github.com/culvert-io/culvert/internal/abi/nvme"
	abi "github.com/culvert-io/culvert/internal/abi/nvmf"
)

// TestKeyedConnect has the data of Connect in the host's memory, as Linux's host does.
func TestKeyedConnect(t *testing.T) {
	dial := serve(t, tcpDevice(t), &disk{b: make([]byte, 4096)})
	c := connect(t, Config{Device: tcpDevice(t), Dial: dial})
	q, err := newQueue(t.Context(), c, 0, abi.CNTLID_ANY)
	if err != nil {
		t.Fatal(err)
	}
	defer q.close(errors.New("test"))
	m := hostMemory(t, c, abi.ConnectDataSize)
	data := abi.ConnectData{CNTLID: abi.CNTLID_ANY}
	data.SUBNQN, _ = abi.NQN(nqn)
	data.HOSTNQN, _ = abi.NQN("nqn.host")
	copy(m.Bytes, abi.Encode(&data))
	command := func(n uint32) nvme.Command {
		fab := abi.ConnectCommand{Opcode: abi.OPCODE, FCType: abi.TYPE_CONNECT, SGL: abi.Keyed(m.Addr(), n, m.RKey()).Bytes(), SQSize: uint16(c.cfg.Depth - 1)}
		cmd, err := abi.Decode[nvme.Command](abi.Encode(&fab))
		if err != nil {
			t.Fatal(err)
		}
		cmd.Flags |= abi.FLAGS_SGL
		return cmd
	}
	if cqe, err := q.do(t.Context(), "connect", command(abi.ConnectDataSize), nil); err != nil || uint16(cqe.DW0) == 0 {
		t.Errorf("controller %d, %v", cqe.DW0, err)
	}
}

// TestFUA: a write with FUA is durable when it completes, without Flush.
func TestFUA(t *testing.T) {
	d := &disk{b: make([]byte, 4096)}
	c := connect(t, Config{Device: tcpDevice(t), Dial: serve(t, tcpDevice(t), d)})
	m := hostMemory(t, c, 512)
	for fua, want := range []int{0, 1} {
		cmd := nvme.Blocks(nvme.NVM_WRITE, 1, 0, 1)
		cmd.CDW12 |= uint32(fua) * nvme.NVM_FUA
		if err := abi.Keyed(m.Addr(), 512, m.RKey()).Put(&cmd); err != nil {
			t.Fatal(err)
		}
		_, err := c.io().do(t.Context(), "write", cmd, nil)
		if _, syncs := d.state(); err != nil || syncs != want {
			t.Errorf("FUA %d: %v, %d syncs, want %d", fua, err, syncs, want)
		}
	}
}

// TestNamespaceIDs: each namespace has a UUID of its own, which stays the same.
func TestNamespaceIDs(t *testing.T) {
	c := connect(t, Config{Device: tcpDevice(t), Dial: serve(t, tcpDevice(t), &disk{b: make([]byte, 4096)})})
	b, err := c.identifyData(t.Context(), nvme.CNS_NAMESPACE_IDS, 1)
	if err != nil || b[0] != 3 || b[1] != 16 || b[20] != 0 {
		t.Fatalf("% x, %v", b[:24], err)
	}
	one, other := make([]byte, 4096), make([]byte, 4096)
	describeIDs(one, nqn, 1)
	describeIDs(other, nqn, 2)
	if !bytes.Equal(b, one) || bytes.Equal(one, other) || one[10]>>4 != 8 || one[12]>>6 != 2 {
		t.Errorf("% x, % x, % x", b[:20], one[:20], other[:20])
	}
	if _, err := c.identifyData(t.Context(), nvme.CNS_NAMESPACE_IDS, 2); status(err) != nvme.INVALID_NAMESPACE {
		t.Errorf("a namespace that is none: %v", err)
	}
}

// TestKeepAlive: a host that asked for the timer and is silent loses its controller; one
// that did not ask keeps it. The one command that waits for events ends with its queue.
func TestKeepAlive(t *testing.T) {
	c := connect(t, Config{Device: tcpDevice(t), Dial: serve(t, tcpDevice(t), &disk{b: make([]byte, 4096)})})
	admin := func(opcode uint8, dw10, dw11 uint32) (uint32, error) {
		cqe, err := c.admin.do(t.Context(), "command", nvme.Command{Opcode: opcode, Flags: abi.FLAGS_SGL, CDW10: dw10, CDW11: dw11}, nil)
		return cqe.DW0, err
	}
	if v, err := admin(nvme.ADMIN_GET_FEATURES, nvme.FEAT_KATO, 0); v != 0 || err != nil {
		t.Errorf("the timer of a host that asked for none: %d, %v", v, err)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := admin(nvme.ADMIN_ASYNC_EVENT, 0, 0)
		waited <- err
	}()
	for { // until the other one waits
		ctl := nvme.Status(0)
		if _, err := admin(nvme.ADMIN_KEEP_ALIVE, 0, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := admin(nvme.ADMIN_ASYNC_EVENT, 0, 0); err != nil {
			ctl = status(err)
		}
		if ctl == nvme.ASYNC_EVENT_LIMIT_EXCEEDED {
			break
		}
	}
	if _, err := admin(nvme.ADMIN_SET_FEATURES, nvme.FEAT_KATO, 1); err != nil {
		t.Fatal(err)
	}
	<-c.admin.ended
	if err := <-waited; err == nil {
		t.Error("an event came")
	}
}
