package objecttest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"html"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const accessKey = "AKIDEXAMPLE"

// modified is the time of the objects that a store has from the beginning.
var modified = time.Unix(1_700_000_000, 0)

// A Store is a bucket of S3 in memory: enough of the protocol for a client, with
// checksums, conditional writes and uploads in parts. It knows one access key and does
// not check signatures.
type Store struct {
	Bucket, AccessKey string
	Page              int  // keys of a page of a listing
	Unsummed          bool // it has no checksums
	NoConditions      int  // the status of conditional writes, if it has none
	// Now is the time of an object that is written (default: a second later than the
	// last one, from a day in 2023 on).
	Now func() time.Time

	mu      sync.Mutex
	objects map[string][]byte
	times   map[string]time.Time
	uploads map[string]*upload
	n       int
}

type upload struct {
	key   string
	begun time.Time
	parts map[int][]byte
}

// NewStore returns a store with one bucket.
func NewStore(objects map[string][]byte) *Store {
	s := &Store{Bucket: "bucket", AccessKey: accessKey, Page: 1000, objects: map[string][]byte{}, times: map[string]time.Time{}, uploads: map[string]*upload{}}
	maps.Copy(s.objects, objects)
	for key := range objects {
		s.times[key] = modified
	}
	last := modified
	s.Now = func() time.Time {
		last = last.Add(time.Second)
		return last
	}
	return s
}

func (s *Store) setLocked(key string, data []byte) { s.objects[key], s.times[key] = data, s.Now() }

// Object returns an object.
func (s *Store) Object(key string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.objects[key]
	return data, ok
}

// Keys returns the keys of all objects, in order.
func (s *Store) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// Set replaces an object.
func (s *Store) Set(key string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLocked(key, data)
}

// Uploads is how many uploads are not ended.
func (s *Store) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

// Abandon begins an upload and forgets it.
func (s *Store) Abandon(key string, age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	s.uploads[fmt.Sprint("old", s.n)] = &upload{key: key, begun: time.Now().Add(-age)}
}

func fail(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>m</Message></Error>`, code)
}

func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	switch auth := r.Header.Get("Authorization"); {
	case auth == "":
		fail(w, http.StatusForbidden, "AccessDenied")
		return
	case !strings.Contains(auth, "Credential="+s.AccessKey+"/"):
		fail(w, http.StatusForbidden, "InvalidAccessKeyId")
		return
	case r.Header.Get("X-Amz-Security-Token") == "expired":
		fail(w, http.StatusBadRequest, "ExpiredToken")
		return
	case bucket != s.Bucket:
		fail(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	switch {
	case key == "" && q.Has("uploads"):
		s.listUploads(w)
	case key == "":
		s.list(w, q)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		s.get(w, r, key)
	case r.Method == http.MethodPost && q.Has("uploads"):
		s.n++
		id := fmt.Sprint("u", s.n)
		s.uploads[id] = &upload{key, time.Now(), map[int][]byte{}}
		fmt.Fprintf(w, `<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>`, id)
	case q.Has("uploadId"):
		s.upload(w, r, key, q)
	case r.Method == http.MethodPut:
		if data, ok := body(w, r); ok && s.allowed(w, r, key) {
			s.setLocked(key, data)
			w.Header().Set("ETag", ETag(data))
		}
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	}
}

// body reads a body and compares its checksum.
func body(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	data, err := io.ReadAll(r.Body)
	if err != nil || int64(len(data)) != r.ContentLength {
		fail(w, http.StatusBadRequest, "IncompleteBody")
		return nil, false
	}
	if want := r.Header.Get("X-Amz-Checksum-Crc32c"); want != "" && want != sum(data) {
		fail(w, http.StatusBadRequest, "BadDigest")
		return nil, false
	}
	return data, true
}

func sum(data []byte) string {
	c := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, c))
}

// allowed checks the condition of a write.
func (s *Store) allowed(w http.ResponseWriter, r *http.Request, key string) bool {
	old, exists := s.objects[key]
	match := r.Header.Get("If-Match")
	if s.NoConditions != 0 && (match != "" || r.Header.Get("If-None-Match") != "") {
		fail(w, s.NoConditions, "NotImplemented")
		return false
	}
	if r.Header.Get("If-None-Match") == "*" && exists || match != "" && (!exists || match != ETag(old)) {
		fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return false
	}
	return true
}

func (s *Store) get(w http.ResponseWriter, r *http.Request, key string) {
	data, ok := s.objects[key]
	if !ok {
		fail(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	w.Header().Set("ETag", ETag(data))
	if r.Header.Get("X-Amz-Checksum-Mode") == "ENABLED" && !s.Unsummed {
		w.Header().Set("X-Amz-Checksum-Crc32c", sum(data))
		w.Header().Set("X-Amz-Checksum-Type", "FULL_OBJECT")
	}
	http.ServeContent(w, r, "", s.times[key], bytes.NewReader(data))
}

func (s *Store) upload(w http.ResponseWriter, r *http.Request, key string, q url.Values) {
	id := q.Get("uploadId")
	u, ok := s.uploads[id]
	if !ok || u.key != key {
		fail(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	switch r.Method {
	case http.MethodPut:
		n, _ := strconv.Atoi(q.Get("partNumber"))
		if data, ok := body(w, r); ok {
			u.parts[n] = data
			w.Header().Set("ETag", ETag(data))
		}
	case http.MethodDelete:
		delete(s.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPost:
		s.complete(w, r, id, u)
	}
}

func (s *Store) complete(w http.ResponseWriter, r *http.Request, id string, u *upload) {
	var list struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	text, _ := io.ReadAll(r.Body)
	if xml.Unmarshal(text, &list) != nil || len(list.Part) != len(u.parts) {
		fail(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	var data []byte
	for i, p := range list.Part {
		part, ok := u.parts[p.PartNumber]
		if !ok || p.PartNumber != i+1 || p.ETag != ETag(part) {
			fail(w, http.StatusBadRequest, "InvalidPart")
			return
		}
		data = append(data, part...)
	}
	if want := r.Header.Get("X-Amz-Checksum-Crc32c"); want != "" && want != sum(data) {
		fail(w, http.StatusBadRequest, "BadDigest")
		return
	}
	if s.allowed(w, r, u.key) {
		s.setLocked(u.key, data)
		delete(s.uploads, id)
		fmt.Fprintf(w, `<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>`, ETag(data))
	}
}

func (s *Store) list(w http.ResponseWriter, q url.Values) {
	fmt.Fprint(w, `<ListBucketResult><EncodingType>url</EncodingType>`)
	n, prefix := 0, q.Get("prefix")
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok || q.Get("delimiter") == "/" && strings.Contains(rest, "/") || key <= q.Get("continuation-token") {
			continue
		}
		if n++; n > s.Page {
			break
		}
		fmt.Fprintf(w, `<Contents><Key>%s</Key><Size>%d</Size><ETag>%s</ETag><LastModified>%s</LastModified></Contents>`, url.QueryEscape(key), len(s.objects[key]),
			html.EscapeString(ETag(s.objects[key])), s.times[key].UTC().Format(time.RFC3339))
		if n == s.Page {
			fmt.Fprintf(w, `<NextContinuationToken>%s</NextContinuationToken>`, key)
		}
	}
	if q.Get("delimiter") == "/" && q.Get("continuation-token") == "" {
		s.listDirs(w, prefix)
	}
	fmt.Fprintf(w, `<IsTruncated>%t</IsTruncated></ListBucketResult>`, n > s.Page)
}

// listDirs lists what is between a prefix and the next slash.
func (s *Store) listDirs(w io.Writer, prefix string) {
	dirs := map[string]bool{}
	for key := range s.objects {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			if dir, _, deep := strings.Cut(rest, "/"); deep {
				dirs[prefix+dir+"/"] = true
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		fmt.Fprintf(w, `<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>`, url.QueryEscape(dir))
	}
}

func (s *Store) listUploads(w http.ResponseWriter) {
	fmt.Fprint(w, `<ListMultipartUploadsResult>`)
	for id, u := range s.uploads {
		fmt.Fprintf(w, `<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>%s</Initiated></Upload>`, u.key, id, u.begun.UTC().Format(time.RFC3339))
	}
	fmt.Fprint(w, `</ListMultipartUploadsResult>`)
}
