package tensor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/tensor"
)

// weights are the tensors that the examples save.
func weights() []tensor.Source {
	return []tensor.Source{
		{Name: "model.embed.weight", Dtype: "F32", Shape: []int64{8, 128}, Data: bytes.NewReader(make([]byte, 4096))},
		{Name: "model.layers.0.q_proj.weight", Dtype: "BF16", Shape: []int64{64, 32}, Data: bytes.NewReader(make([]byte, 4096))},
		{Name: "model.norm.weight", Dtype: "BF16", Shape: []int64{32}, Data: bytes.NewReader(make([]byte, 64))},
	}
}

// saved saves the weights in a new directory and returns the path of the file. The
// caller removes the directory.
func saved() string {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(dir, "model.safetensors")
	if _, err := tensor.Save(context.Background(), path, weights(), nil); err != nil {
		log.Fatal(err)
	}
	return path
}

// Load a model to GPU 0 and use each tensor as soon as it is ready.
func Example() {
	path := saved()
	defer os.RemoveAll(filepath.Dir(path))

	m, err := machine.Open() // the software machine, if there is no GPU
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	drv, err := cufile.Open(m)
	if err != nil {
		log.Fatal(err)
	}
	defer drv.Close()

	model, err := tensor.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	plan, err := tensor.NewPlan(model, []tensor.Selection{{Device: 0}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	load, err := tensor.NewLoad(plan, drv, &tensor.LoadOptions{Verify: true})
	if err != nil {
		log.Fatal(err)
	}
	defer load.Close() // frees the memory

	for t, err := range load.Tensors(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t.Name, t.Dtype, t.Shape, t.Span.Len, t.Verified)
	}
	// Unordered output:
	// model.embed.weight F32 [8 128] 4096 true
	// model.layers.0.q_proj.weight BF16 [64 32] 4096 true
	// model.norm.weight BF16 [32] 64 true
}

func ExampleOpen() {
	path := saved()
	defer os.RemoveAll(filepath.Dir(path))

	model, err := tensor.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	for _, info := range model.Tensors {
		fmt.Printf("%6d %s %s %v\n", info.Off, info.Name, info.Dtype, info.Shape)
	}
	// Output:
	//   4096 model.embed.weight F32 [8 128]
	//   8192 model.layers.0.q_proj.weight BF16 [64 32]
	//  12288 model.norm.weight BF16 [32]
}

// Plan the second of two tensor-parallel slices for GPU 1, and print the plan.
func ExampleNewPlan() {
	path := saved()
	defer os.RemoveAll(filepath.Dir(path))

	model, err := tensor.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	sel, err := tensor.ParseSelection("tp=2,rank=1")
	if err != nil {
		log.Fatal(err)
	}
	parts, err := sel.Spread([]int{1})
	if err != nil {
		log.Fatal(err)
	}
	plan, err := tensor.NewPlan(model, parts, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(plan)
	// Output:
	// plan for model.safetensors: files=1 tensors=3 placed=3 align=256
	//
	// gpu:1 buffer 0, 6208 bytes
	//   0x0     F32   [8,128]             model.embed.weight
	//   0x1000  BF16  [32,32] of [64,32]  model.layers.0.q_proj.weight
	//   0x1800  BF16  [32]                model.norm.weight
	//
	// reads
	//   model.safetensors  4096+4096   -> gpu:1 0+0x0     model.embed.weight
	//   model.safetensors  10240+2112  -> gpu:1 0+0x1000  model.layers.0.q_proj.weight .. model.norm.weight (2)
	//
	// 2 reads, 2 runs, 6208 bytes read for 6208 wanted (1.0000), 6208 bytes of device memory
}

// Damage is located by chunk, and named by the tensors in it.
func ExampleVerify() {
	path := saved()
	defer os.RemoveAll(filepath.Dir(path))

	if _, err := tensor.Verify(context.Background(), path); err != nil {
		log.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("?"), 5000); err != nil {
		log.Fatal(err)
	}
	f.Close()
	_, err = tensor.Verify(context.Background(), path)
	if damage, ok := errors.AsType[*tensor.ChecksumError](err); ok {
		fmt.Println(damage.Damaged[0].Tensors)
	}
	// Output: [model.embed.weight model.layers.0.q_proj.weight model.norm.weight]
}

func ExampleCheckpoints() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	c := &tensor.Checkpoints{Dir: dir, Keep: 2}
	for step := int64(100); step <= 300; step += 100 {
		if _, err := c.Save(context.Background(), step, weights(), nil); err != nil {
			log.Fatal(err)
		}
	}
	model, err := tensor.Open(filepath.Join(dir, "latest"))
	if err != nil {
		log.Fatal(err)
	}
	list, err := filepath.Glob(filepath.Join(dir, "step-*"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(model.Tensors), "tensors in the latest of", len(list), "steps")
	// Output: 3 tensors in the latest of 2 steps
}
