package gpu_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/machine"
)

// Copy data to a GPU and run a kernel on it.
func Example() {
	m, err := machine.OpenAs(machine.Soft) // machine.Open() uses a GPU if there is one
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	dev, err := m.GPU.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	data, err := dev.Alloc(gpu.KindDevice, 16, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Free(data)
	total := data + 8
	err = errors.Join(
		dev.CopyIn(data, []byte{1, 2, 3, 4}),
		dev.Fill(total, 0, 1, 8),
	)
	if err != nil {
		log.Fatal(err)
	}

	mod, err := dev.Load(kernels.PTX)
	if err != nil {
		log.Fatal(err)
	}
	defer mod.Close()
	sum, err := mod.Func("culvert_sum")
	if err != nil {
		log.Fatal(err)
	}
	stream, err := dev.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()
	err = errors.Join(
		stream.Launch(sum, gpu.Dim{X: 1}, gpu.Dim{X: 32}, data, uint64(4), total),
		stream.Synchronize(),
	)
	if err != nil {
		log.Fatal(err)
	}
	var result [8]byte
	if err := dev.CopyOut(result[:], total); err != nil {
		log.Fatal(err)
	}
	fmt.Println(binary.LittleEndian.Uint64(result[:]))
	// Output: 10
}

// Errors of a driver have CUDA's codes.
func ExampleCode() {
	m, err := machine.OpenAs(machine.Soft)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	dev, err := m.GPU.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	_, err = dev.Alloc(gpu.KindDevice, 1<<50, 0)
	fmt.Println(errors.Is(err, gpu.ErrOutOfMemory), gpu.CodeOf(err).Name())
	// Output: true CUDA_ERROR_OUT_OF_MEMORY
}
