package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/hold"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/tensor"
)

// seenGPUs are the GPUs of the machine, opened through cuFile.
type seenGPUs struct {
	mach *machine.Machine
	*cufile.Driver
}

func (g seenGPUs) Devices() ([]gpu.Info, error) { return g.mach.GPU.Devices() }

// A holder keeps a model for others, if a socket was named; otherwise it does
// nothing.
type holder struct {
	gpus     seenGPUs
	model    hold.Model
	listener *net.UnixListener
}

// newHolder takes the socket before anything is loaded, so that one that is in
// use is known at once, and clients that come early wait.
func newHolder(sock string, m *tensor.Model, mach *machine.Machine, drv *cufile.Driver) (h *holder, err error) {
	h = &holder{gpus: seenGPUs{mach, drv}}
	if sock == "" {
		return h, nil
	}
	h.model = hold.Model{Name: m.Path, Metadata: metadata(m)}
	h.listener, err = hold.Listen(sock)
	return h, err
}

// metadata is that of all files together.
func metadata(m *tensor.Model) map[string]string {
	all := map[string]string{}
	for _, f := range m.Files {
		for k, v := range f.Metadata {
			all[k] = v
		}
	}
	return all
}

func (h *holder) close() {
	if h.listener != nil {
		h.listener.Close() // again, where it has served
	}
}

// keep remembers a tensor.
func (h *holder) keep(t *tensor.Tensor) {
	if h.listener != nil {
		h.model.Tensors = append(h.model.Tensors, *t)
	}
}

// serve hands the model out until the command is stopped.
func (h *holder) serve(ctx context.Context, out io.Writer) error {
	share := hold.ByDescriptor
	if h.gpus.mach.Soft {
		share = hold.ByCopy
	}
	s, err := hold.NewServer(&h.model, h.gpus, share)
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Fprintf(out, "holding %s share=%s pid=%d (Ctrl-C ends it)\n", h.listener.Addr(), share, os.Getpid())
	if err := s.Serve(ctx, h.listener); err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	fmt.Fprintf(out, "released %s attached=%d\n", h.listener.Addr(), s.Served())
	return nil
}
