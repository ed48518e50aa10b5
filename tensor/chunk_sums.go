package tensor

import "sort"

// chunkSums computes the checksums of a file chunk by chunk, in any order and from
// several goroutines, each byte once. Chunks lie on a grid of the file, as O_DIRECT
// needs them; a tensor's sum is joined from its segments in the chunks.
type chunkSums struct {
	file     *File
	chunk    int64
	chunks   []Sum
	segments [][]Sum // of each tensor, one for each chunk that it touches
}

// inHeader is the tensor number of segments of the header.
const inHeader = -1

func newChunkSums(f *File, chunk int64) *chunkSums {
	t := &chunkSums{file: f, chunk: chunk}
	t.chunks = make([]Sum, (f.Size+chunk-1)/chunk)
	t.segments = make([][]Sum, len(f.Tensors))
	for i, info := range f.Tensors {
		if info.Len > 0 {
			t.segments[i] = make([]Sum, (info.Off+info.Len-1)/chunk-info.Off/chunk+1)
		}
	}
	return t
}

// bounds returns where chunk k starts and ends.
func (t *chunkSums) bounds(k int64) (from, to int64) {
	return k * t.chunk, min((k+1)*t.chunk, t.file.Size)
}

// each calls do for the segments of chunk k in order, with their tensor and their
// range in the file.
func (t *chunkSums) each(k int64, do func(tensor int, from, to int64) error) error {
	from, to := t.bounds(k)
	if from < t.file.Data {
		if err := do(inHeader, from, min(to, t.file.Data)); err != nil {
			return err
		}
	}
	infos := t.file.Tensors
	first := sort.Search(len(infos), func(i int) bool { return infos[i].Off+infos[i].Len > from })
	for i := first; i < len(infos) && infos[i].Off < to; i++ {
		if infos[i].Len == 0 {
			continue
		}
		if err := do(i, max(from, infos[i].Off), min(to, infos[i].Off+infos[i].Len)); err != nil {
			return err
		}
	}
	return nil
}

// add sums the bytes of chunk k.
func (t *chunkSums) add(k int64, p []byte) {
	start, _ := t.bounds(k)
	var all Sum
	t.each(k, func(tensor int, from, to int64) error {
		s := sumOf(p[from-start : to-start])
		if tensor != inHeader {
			t.segments[tensor][k-t.file.Tensors[tensor].Off/t.chunk] = s
		}
		all = all.join(s, to-from)
		return nil
	})
	t.chunks[k] = all
}

// tensor returns the sum of a tensor when all its chunks were added.
func (t *chunkSums) tensor(i int) Sum {
	var all Sum
	info := t.file.Tensors[i]
	for j, s := range t.segments[i] {
		from, to := t.bounds(info.Off/t.chunk + int64(j))
		all = all.join(s, min(to, info.Off+info.Len)-max(from, info.Off))
	}
	return all
}
