package block

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Layer is a block device or file system between files and a drive, as far as a
// direct transfer notices it: what it does with the pages of a request, and how the
// bytes on the drive differ from those in the file.
type Layer struct {
	Name string
	// Transform makes the drive's bytes of the file's at an offset, and the file's of
	// the drive's. It is nil if they are the same.
	Transform func(b []byte, off int64)
	Shift     int64 // byte n of the layer is byte n+Shift below
	Legs      int   // how many times a write goes down; 0 means once
	// OwnReads and OwnWrites mean that the layer below gets pages of this layer, from
	// and to which it copies.
	OwnReads, OwnWrites bool
	// Checks compares what was read with checksums, in the pages of the request.
	Checks bool
	// Unhooked is a drive whose driver does not know nvidia-fs.
	Unhooked bool
	// Half is an array of two drives, of which the second is Unhooked. Nothing is below it.
	Half  bool
	Chunk int64 // of an array that stripes: how much is on one drive, then on the other
}

// layers by name, as Linux has them.
var layers = map[string]Layer{
	"crypt":    {Transform: cipher, OwnWrites: true}, // reads are decrypted where they arrive
	"raid5":    {OwnWrites: true},                    // the stripe cache
	"raid1":    {Legs: 2},
	"raid0":    {},
	"linear":   {Shift: 1 << 20},
	"btrfs":    {Checks: true, OwnWrites: true},
	"compress": {OwnReads: true, OwnWrites: true},
	"virtio":   {Unhooked: true},

	"raid0-half": {Half: true, Chunk: 64 << 10},
	"raid1-half": {Half: true},
}

// ParseLayers parses "crypt+raid1": layers from the file down.
func ParseLayers(text string) (list []Layer, err error) {
	if text == "" {
		return nil, nil
	}
	for name := range strings.SplitSeq(text, "+") {
		l, ok := layers[name]
		if !ok {
			return nil, fmt.Errorf("unknown layer %q (layers: %s)", name, strings.Join(slices.Sorted(maps.Keys(layers)), ", "))
		}
		if len(list) > 0 && list[len(list)-1].Half {
			return nil, fmt.Errorf("layer %s stands on drives: nothing can be below it", list[len(list)-1].Name)
		}
		l.Name = name
		list = append(list, l)
	}
	return list, nil
}

// cipher is a stream cipher without secrets.
func cipher(b []byte, off int64) {
	for i := range b {
		b[i] ^= byte((uint64(off)+uint64(i))*0x9e3779b97f4a7c15>>56) | 1 // never the byte itself
	}
}

// A View is the file behind a drive as layers put it there.
type View struct {
	shift      int64
	transforms []func(b []byte, off int64)
}

// NewView returns the view through layers.
func NewView(list []Layer) *View {
	v := &View{}
	for _, l := range list {
		if l.Transform != nil {
			above := v.shift
			v.transforms = append(v.transforms, func(b []byte, off int64) { l.Transform(b, off+above) })
		}
		v.shift += l.Shift
	}
	return v
}

// apply makes one of the other, at an offset in the file.
func (v *View) apply(b []byte, off int64) {
	for _, t := range v.transforms {
		t(b, off)
	}
}
