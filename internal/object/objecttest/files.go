package objecttest

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// Files is a web server of files in memory that answers range requests.
type Files map[string][]byte

func (f Files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, ok := f[strings.TrimPrefix(r.URL.Path, "/")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", ETag(data))
	http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), bytes.NewReader(data))
}

// ETag is the ETag of contents.
func ETag(data []byte) string { return fmt.Sprintf(`"%08x-%d"`, crc32.ChecksumIEEE(data), len(data)) }

// Bytes returns n bytes that look random and are always the same.
func Bytes(n int, seed uint64) []byte {
	p := make([]byte, n)
	src := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = src.Read(p)
	return p
}
