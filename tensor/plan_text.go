package tensor

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/culvert-io/culvert/internal/human"
)

// WriteTo prints the plan for people: what goes where, the reads in the order
// in which they are made, and the sums.
func (p *Plan) WriteTo(w io.Writer) (int64, error) {
	c := &countWriter{w: w}
	b := bufio.NewWriter(c)
	t := p.Totals()
	fmt.Fprintf(b, "plan for %s: files=%d tensors=%d placed=%d align=%d\n", filepath.Base(p.Model), len(p.Files), p.Of, len(p.Tensors), p.Align)
	p.writeTensors(b)
	p.writeReads(b)
	fmt.Fprintf(b, "\n%d reads, %d runs, %d bytes read for %d wanted (%.4f), %d bytes of device memory\n",
		t.Reads, t.Runs, t.Read, t.Wanted, ratio(t.Read, t.Wanted), t.Device)
	err := b.Flush()
	return c.n, err
}

func (p *Plan) String() string {
	var b strings.Builder
	p.WriteTo(&b)
	return b.String()
}

func (p *Plan) writeTensors(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	buffer := -1
	for i := range p.Tensors {
		t := &p.Tensors[i]
		if t.Buffer != buffer {
			buffer = t.Buffer
			tw.Flush()
			fmt.Fprintf(w, "\ngpu:%d buffer %d, %d bytes\n", p.Buffers[buffer].Device, buffer, p.Buffers[buffer].Size)
		}
		fmt.Fprintf(tw, "  %#x\t%s\t%s\t%s\n", t.Off, t.Dtype, t.shapeText(), human.Name(t.Name))
	}
	tw.Flush()
}

func (p *Plan) writeReads(w io.Writer) {
	fmt.Fprintf(w, "\nreads\n")
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
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
		fmt.Fprintf(tw, "  %s\t%s\t-> gpu:%d %d+%#x\t%s\n", p.fileName(r.File), from, p.Buffers[r.Buffer].Device, r.Buffer, r.Dst, what)
	}
	tw.Flush()
}

func (t *Placed) shapeText() string {
	s := shapeText(t.Shape)
	if t.Whole != nil {
		s += " of " + shapeText(t.Whole)
	}
	return s
}

func shapeText(shape []int64) string {
	return "[" + strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ","), "[]") + "]"
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 1
	}
	return float64(a) / float64(b)
}

// A countWriter counts, because WriteTo must.
type countWriter struct {
	w io.Writer
	n int64
}

func (c *countWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
