package nvme

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A span of bus addresses.
type span struct{ bus, n uint64 }

// walk reads PRP entries as a controller does, by the words of the
// specification. read is the word at a bus address.
func walk(t *rapid.T, prp1, prp2, n uint64, read func(bus uint64) uint64) (spans []span) {
	add := func(prp uint64) {
		if len(spans) > 0 && prp%pageSize != 0 {
			t.Fatalf("entry %d, %#x, has an offset", len(spans), prp)
		}
		k := min(n, pageSize-prp%pageSize)
		spans = append(spans, span{prp, k})
		n -= k
	}
	add(prp1)
	if n == 0 {
		return spans
	}
	if n <= pageSize {
		add(prp2)
		return spans
	}
	list := prp2
	if list%8 != 0 {
		t.Fatalf("the list is at %#x", list)
	}
	for n > 0 {
		last := list%pageSize == pageSize-8
		if last && n > pageSize {
			list = read(list)
			if list%pageSize != 0 {
				t.Fatalf("the next list is at %#x", list)
			}
			continue
		}
		add(read(list))
		list += 8
	}
	return spans
}

// TestPRPsCoverExactlyTheTransfer holds putPRPs against such a walk: the
// addresses are those of the transfer's bytes, in order, no more and no fewer.
func TestPRPsCoverExactlyTheTransfer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]uint64{pageSize, gpuPage, 1 << 24}).Draw(t, "size of a mapped page")
		count := int(max(1, uint64(12<<20)/size))
		mem := pageTable{scattered(t, count, size), size}
		total := uint64(count) * size
		off := 4 * rapid.Uint64Range(0, total/4-1).Draw(t, "offset")
		// Lengths that fill pages and lists to the last entry matter most.
		pages := rapid.SampledFrom([]uint64{1, 2, 3, 511, 512, 513, 514, 1023, 1024, 1025, 1500}).Draw(t, "pages")
		n := pages*pageSize - off%pageSize - rapid.SampledFrom([]uint64{0, 0, 4, pageSize - 4}).Draw(t, "less")
		if n = min(n, total-off); n-1 >= 6<<20 {
			n = 4
		}
		lists := prpLists{
			words: make([]uint64, listPages(6<<20)*perList),
			table: pageTable{scattered(t, 16, pageSize), pageSize},
			off:   pageSize * rapid.Uint64Range(0, 8).Draw(t, "offset of the lists"),
		}
		const unused = 1
		for i := range lists.words {
			lists.words[i] = unused
		}
		prp1, prp2 := putPRPs(mem, off, n, lists)
		read := func(bus uint64) uint64 {
			for i := range lists.words {
				if lists.table.at(lists.off+uint64(i)*8) == bus {
					return lists.words[i]
				}
			}
			t.Fatalf("a list leads to %#x, where there is none", bus)
			return 0
		}
		var want []span
		for o := off; o < off+n; {
			k := min(off+n-o, pageSize-o%pageSize)
			want = append(want, span{mem.at(o), k})
			o += k
		}
		if got := walk(t, prp1, prp2, n, read); !slices.Equal(got, want) {
			t.Fatalf("the entries cover %x, want %x", got, want)
		}
		used := len(lists.words) - count1(lists.words, unused)
		if limit := listPages(int((n+pageSize-1)&^(pageSize-1))) * perList; used > limit {
			t.Fatalf("%d words of lists are in use, want %d at most", used, limit)
		}
	})
}

func count1(words []uint64, v uint64) (n int) {
	for _, w := range words {
		if w == v {
			n++
		}
	}
	return n
}

// scattered is addresses of pages in no order.
func scattered(t *rapid.T, n int, size uint64) []uint64 {
	seed := rapid.Uint64().Draw(t, "order of pages") | 1
	pages := make([]uint64, n)
	for i := range pages {
		pages[i] = 1<<40 + (uint64(i)*seed%uint64(4*n+1))*size
	}
	slices.Sort(pages)
	pages = slices.Compact(pages)
	for len(pages) < n {
		pages = append(pages, pages[len(pages)-1]+2*size)
	}
	for i := range pages {
		j := int(seed>>8) % (i + 1)
		seed = seed*6364136223846793005 + 1442695040888963407
		pages[i], pages[j] = pages[j], pages[i]
	}
	return pages
}

func TestListPages(t *testing.T) {
	for n, want := range map[int]int{
		4096: 1, 1 << 20: 1, 512 * 4096: 1, 513 * 4096: 2, (511 + 512) * 4096: 2, (511+512)*4096 + 4096: 3, 64 << 20: 33,
	} {
		if got := listPages(n); got != want {
			t.Errorf("%d bytes need %d pages of lists, want %d", n, got, want)
		}
	}
}

// TestGPUPagesKeepOrder expands 64 KiB pages to those of the controller.
func TestGPUPagesKeepOrder(t *testing.T) {
	table := pageTable{[]uint64{0x70000, 0x10000, 0x500000}, gpuPage}
	for i := range uint64(3 * 16) {
		want := table.pages[i*pageSize/gpuPage] + i*pageSize%gpuPage
		if got := table.at(i * pageSize); got != want {
			t.Errorf("page %d is at %#x, want %#x", i, got, want)
		}
	}
}

// TestRequestList adds and removes in all orders.
func TestRequestList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l list
		var model []*Request
		rs := make([]Request, 6)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			r := &rs[rapid.IntRange(0, len(rs)-1).Draw(t, "request")]
			if i := slices.Index(model, r); i >= 0 {
				l.remove(r)
				model = slices.Delete(model, i, i+1)
			} else {
				l.add(r)
				model = append(model, r)
			}
			var forward, back []*Request
			for x := l.first; x != nil; x = x.next {
				forward = append(forward, x)
			}
			for x := l.last; x != nil; x = x.prev {
				back = append(back, x)
			}
			slices.Reverse(back)
			if !slices.Equal(forward, model) || !slices.Equal(back, model) {
				t.Fatalf("%v and %v, want %v", forward, back, model)
			}
		}
	})
}
