package block

import (
	"bytes"
	"os"
	"testing"
)

func parse(t *testing.T, text string) []Layer {
	t.Helper()
	list, err := ParseLayers(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestParseLayers(t *testing.T) {
	if list := parse(t, "crypt+linear"); len(list) != 2 || list[0].Name != "crypt" || list[1].Shift == 0 {
		t.Errorf("%+v", list)
	}
	if list := parse(t, ""); list != nil {
		t.Errorf("%+v", list)
	}
	for _, bad := range []string{"+", "crypt+", "rot13", "raid1-half+linear"} {
		if _, err := ParseLayers(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// The drive has other bytes than the file, in other places; what is written through
// the layers is read through them.
func TestView(t *testing.T) {
	const size = 64 << 10
	for _, stack := range []string{"crypt", "linear", "linear+crypt", "crypt+linear+raid1"} {
		f, _ := newFile(t, size, os.O_RDWR)
		layers := parse(t, stack)
		shift := int64(0)
		for _, l := range layers {
			shift += l.Shift
		}
		plain := bytes.Repeat([]byte("plain text"), size)[:size]
		if _, err := f.WriteAt(plain, 0); err != nil {
			t.Fatal(err)
		}
		var g Guest
		g.Admit(int(f.Fd()), NewView(layers))
		drive := paged(t, size)
		if n, err := g.ReadV([][]byte{drive[:4096], drive[4096:]}, shift); n != size || err != nil {
			t.Fatalf("%s: read %d bytes, %v", stack, n, err)
		}
		want := bytes.Clone(plain)
		switch stack {
		case "crypt", "crypt+linear+raid1":
			cipher(want, 0)
		case "linear+crypt": // which sees what linear has moved
			cipher(want, shift)
		}
		if !bytes.Equal(drive, want) {
			t.Errorf("%s: the drive has other bytes", stack)
		}
		// In other pieces: the transform depends on the place alone.
		if n, err := g.ReadV([][]byte{drive[8192:][:4096]}, shift+8192); n != 4096 || err != nil {
			t.Fatal(n, err)
		}
		if err := f.Truncate(0); err != nil {
			t.Fatal(err)
		}
		for at := 0; at < size; at += 16 << 10 {
			if n, err := g.WriteV([][]byte{drive[at:][:4096], drive[at+4096:][:12288]}, shift+int64(at)); n != 16<<10 || err != nil {
				t.Fatalf("%s: wrote %d bytes, %v", stack, n, err)
			}
		}
		got := make([]byte, size)
		if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%s: the file has other bytes, %v", stack, err)
		}
		if err := g.Dismiss(); err != nil {
			t.Error(err)
		}
	}
}
