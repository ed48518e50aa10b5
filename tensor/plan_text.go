package tensor

import (
	"fmt"
	"io"
	"strings"

	"github.com/culvert-io/culvert/internal/human"
)

// String describes the plan for people: what goes where, the reads in their order,
// and the totals.
func (p *Plan) String() string {
	var b strings.Builder
	t := p.Totals()
	fmt.Fprintf(&b, "plan for %s: files=%d tensors=%d placed=%d align=%d\n", storedName(p.Model), len(p.Files), p.Of, len(p.Tensors), p.Align)
	p.writeTensors(&b)
	p.writeReads(&b)
	p.writeCopies(&b)
	ratio := 1.0
	if t.Wanted > 0 {
		ratio = float64(t.Read) / float64(t.Wanted)
	}
	fmt.Fprintf(&b, "\n%d reads, %d runs, %d bytes read for %d wanted (%.4f), %d bytes of device memory\n",
		t.Reads, t.Runs, t.Read, t.Wanted, ratio, t.Device)
	if t.Copied > 0 {
		fmt.Fprintf(&b, "%d copies, %d bytes from GPU to GPU\n", len(p.Copies), t.Copied)
	}
	return b.String()
}

func (p *Plan) writeCopies(w io.Writer) {
	if len(p.Copies) == 0 {
		return
	}
	fmt.Fprintf(w, "\ncopies\n")
	tw := human.Table(w)
	for _, c := range p.Copies {
		from, to := &p.Tensors[c.From], &p.Tensors[c.To]
		fmt.Fprintf(tw, "  gpu:%d\t-> gpu:%d %d+%#x\t%s\n", p.Buffers[from.Buffer].Device, p.Buffers[to.Buffer].Device, to.Buffer, to.Off, human.Name(to.Name))
	}
	tw.Flush()
}

func (p *Plan) writeTensors(w io.Writer) {
	tw := human.Table(w)
	buffer := -1
	for i := range p.Tensors {
		t := &p.Tensors[i]
		if t.Buffer != buffer {
			buffer = t.Buffer
			tw.Flush()
			fmt.Fprintf(w, "\ngpu:%d buffer %d, %d bytes\n", p.Buffers[buffer].Device, buffer, p.Buffers[buffer].Size)
		}
		shape := shapeText(t.Shape)
		if t.Whole != nil {
			shape += " of " + shapeText(t.Whole)
		}
		fmt.Fprintf(tw, "  %#x\t%s\t%s\t%s\n", t.Off, t.Dtype, shape, human.Name(t.Name))
	}
	tw.Flush()
}

func (p *Plan) writeReads(w io.Writer) {
	fmt.Fprintf(w, "\nreads\n")
	tw := human.Table(w)
	for i := range p.Reads {
		r := &p.Reads[i]
		from := fmt.Sprintf("%d+%d", r.Off, r.Len)
		if r.Count > 1 {
			from = fmt.Sprintf("%d+%d x%d every %d", r.Off, r.Len, r.Count, r.Stride)
		}
		what := human.Name(p.Tensors[r.First].Name)
		if r.Last > r.First {
			what += fmt.Sprintf(" .. %s (%d)", human.Name(p.Tensors[r.Last].Name), r.Last-r.First+1)
		}
		fmt.Fprintf(tw, "  %s\t%s\t-> gpu:%d %d+%#x\t%s\n", human.Name(storedName(p.Files[r.File])), from, p.Buffers[r.Buffer].Device, r.Buffer, r.Dst, what)
	}
	tw.Flush()
}

func shapeText(shape []int64) string {
	return "[" + strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ","), "[]") + "]"
}
