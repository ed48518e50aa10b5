// Command load shows how a program gets weights into GPU memory: it prints each
// tensor when it is ready, while later ones are still in flight, and then
// which way the bytes went. Without an NVIDIA GPU it runs on a software machine.
//
//	go run ./examples/load model.safetensors
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/tensor"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Print("usage: load MODEL (a safetensors file, an index of shards, or a directory)")
		os.Exit(2)
	}
	if err := load(context.Background(), os.Stdout, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func load(ctx context.Context, out io.Writer, path string) error {
	m, err := machine.Open()
	if err != nil {
		return err
	}
	drv, err := cufile.Open(m)
	if err != nil {
		return err
	}
	defer drv.Close()

	// The headers say everything: nothing is read or allocated before the plan.
	model, err := tensor.Open(path)
	if err != nil {
		return err
	}
	plan, err := tensor.NewPlan(model, []tensor.Selection{{Device: 0}}, &tensor.PlanOptions{ByLayer: true})
	if err != nil {
		return err
	}
	l, err := tensor.NewLoad(plan, drv, nil)
	if err != nil {
		return err
	}
	defer l.Close() // frees the memory: tensors are valid until here

	for t, err := range l.Tensors(ctx) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-60s %-8s %v at %v\n", t.Name, t.Dtype, t.Shape, t.Span.Addr())
	}
	report := l.Report()
	for i := range report.Files {
		fmt.Fprintln(out, report.Files[i].Path, &report.Files[i].Receipt)
	}
	return nil
}
