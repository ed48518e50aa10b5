package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// command is culvert as a user of the server starts it. More variables come last.
func (s *server) command(t *testing.T, args []string, vars ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), culvert, args...)
	dir := t.TempDir()
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "XDG_CACHE_HOME=" + dir, "XDG_RUNTIME_DIR=" + dir,
		"AWS_ENDPOINT_URL=" + s.endpoint, "AWS_ACCESS_KEY_ID=" + accessKey, "AWS_SECRET_ACCESS_KEY=" + secretKey,
		"AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
	}, vars...)
	return cmd
}

// run runs culvert and returns what it printed.
func (s *server) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.command(t, args).CombinedOutput()
	if err != nil {
		t.Fatalf("culvert %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// get returns the bytes of an object.
func (s *server) get(t *testing.T, url string) []byte {
	t.Helper()
	back := filepath.Join(t.TempDir(), "back")
	s.run(t, "cp", url, back)
	data, err := os.ReadFile(back)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// fails runs culvert, which must fail with words in its message.
func (s *server) fails(t *testing.T, words string, args []string, vars ...string) {
	t.Helper()
	out, err := s.command(t, args, vars...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), words) {
		t.Errorf("culvert %s %q: want an error with %q, got %v\n%s", strings.Join(args, " "), vars, words, err, out)
	}
}

func writeFile(t *testing.T, name string, data []byte) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func random(n int, seed byte) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
	return data
}

// model is a safetensors file with one tensor.
func model(n int, seed byte) []byte {
	header := fmt.Sprintf(`{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, n, n)
	data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(data, header...), random(n, seed)...)
}

// isPart tells requests that send a part of an upload; isComplete those that end it.
func isPart(r *http.Request) bool {
	return r.Method == http.MethodPut && r.URL.Query().Has("partNumber")
}

func isComplete(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
}

const threeParts = 2*(8<<20) + 12345

// What is copied to a store is copied back by ranges, with the checksum of the store
// where it has one.
func TestCopy(t *testing.T) {
	each(t, func(t *testing.T, s *server) {
		for _, size := range []int{0, 1, threeParts} {
			data := random(size, 1)
			key := fmt.Sprintf("s3://%s/dir/a b+%d", bucket, size)
			back := filepath.Join(t.TempDir(), "back")
			s.run(t, "cp", writeFile(t, "data", data), key)
			out := s.run(t, "cp", key, back, "--json")
			if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes came back as %d others: %v", size, len(got), err)
			}
			if size == threeParts {
				s.checkReceipt(t, out, size)
			}
		}
	})
}

// checkReceipt looks at the origin of the first receipt of a copy.
func (s *server) checkReceipt(t *testing.T, out string, size int) {
	t.Helper()
	_, text, _ := strings.Cut(out, `"origin":`)
	var origin struct {
		Store           string
		Bytes, Requests int
		Checksum        string
	}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&origin); err != nil {
		t.Fatalf("no origin: %v in %s", err, out)
	}
	// Chunks have 4 MiB at most; the first request is that for the size. A hedge may
	// bring bytes twice.
	if origin.Bytes < size || origin.Requests < 1+size/(4<<20) || origin.Store != "s3+"+s.endpoint {
		t.Errorf("origin is %+v", origin)
	}
	if want := map[bool]string{true: "crc32c"}[s.checksums]; origin.Checksum != want {
		t.Errorf("checksum is %q, want %q", origin.Checksum, want)
	}
}

// A model that was saved is listed, loaded and verified.
func TestModel(t *testing.T) {
	each(t, func(t *testing.T, s *server) {
		url := "s3://" + bucket + "/org/m/model.safetensors"
		s.run(t, "save", writeFile(t, "model.safetensors", model(threeParts, 2)), url)
		if out := s.run(t, "ls", "s3://"+bucket+"/org/m/"); !strings.Contains(out, "w") || !strings.Contains(out, fmt.Sprint(threeParts)) {
			t.Errorf("ls printed %s", out)
		}
		s.run(t, "verify", url)
		s.run(t, "load", "s3://"+bucket+"/org/m/", "gpu:0", "--verify")
	})
}

// A save that is killed between its parts leaves what was there before.
func TestKilledSave(t *testing.T) {
	each(t, func(t *testing.T, s *server) {
		url := "s3://" + bucket + "/k/model.safetensors"
		file := writeFile(t, "model.safetensors", model(threeParts, 3))
		kill(t, s, "save", file, url)
		s.fails(t, "there is no such object", []string{"ls", url})
		s.fails(t, "no *.safetensors in it", []string{"ls", "s3://" + bucket + "/k/"})

		s.run(t, "save", file, url)
		before := s.get(t, url)
		kill(t, s, "save", writeFile(t, "model.safetensors", model(threeParts, 4)), url)
		if !bytes.Equal(s.get(t, url), before) {
			t.Error("a killed save changed the object")
		}
		s.run(t, "verify", url)
	})
}

// Checkpoints are whole or not there, the former one stays until the new one is, and
// latest is the one that was saved last.
func TestCheckpoints(t *testing.T) {
	each(t, func(t *testing.T, s *server) {
		run := "s3://" + bucket + "/run"
		file := writeFile(t, "model.safetensors", model(threeParts, 3))
		s.run(t, "save", file, run, "--step", "100", "--keep", "1")
		kill(t, s, "save", file, run, "--step", "200", "--keep", "1")
		if out := s.run(t, "ls", run); !strings.HasPrefix(out, "100 ") || !strings.Contains(out, "steps: 1,") {
			t.Errorf("after a killed save of step 200 there is %s", out)
		}
		s.fails(t, "there is no such object", []string{"ls", run + "/step-000000200/model.safetensors"})
		s.run(t, "verify", run+"/latest")

		s.run(t, "save", file, run, "--step", "200", "--keep", "1")
		if out := s.run(t, "ls", run); !strings.HasPrefix(out, "200 ") || !strings.Contains(out, "steps: 1,") {
			t.Errorf("after step 200 with --keep 1 there is %s", out)
		}
		s.run(t, "load", run+"/latest", "gpu:0", "--verify")
		s.fails(t, "steps are never overwritten", []string{"save", file, run, "--step", "200"})
		s.fails(t, "there is no bucket missing", []string{"save", file, "s3://missing/run", "--step", "1"})
	})
}

// An object is measured, and the bytes that arrive are those of the object.
func TestBench(t *testing.T) {
	each(t, func(t *testing.T, s *server) {
		url := "s3://" + bucket + "/bench"
		s.run(t, "cp", writeFile(t, "data", random(threeParts, 8)), url)
		out := s.run(t, "bench", url, "--bs", "4M", "--threads", "4", "--size", "16M", "--verify", "--peer", "memory", "--lines")
		if !strings.Contains(out, "engine=culvert route=ring") || !strings.Contains(out, "store=s3+"+s.endpoint) || !strings.Contains(out, "engine=memory") {
			t.Errorf("bench printed %s", out)
		}
	})
}

// kill runs culvert until it has sent one part and sends another, and kills it there.
func kill(t *testing.T, s *server, args ...string) {
	t.Helper()
	arrived, release := s.hold(t, func(r *http.Request) bool { return isPart(r) && r.URL.Query().Get("partNumber") != "1" })
	cmd := s.command(t, args)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "second part", arrived)
	_ = cmd.Process.Kill()
	if err := cmd.Wait(); err == nil {
		t.Error("the save had ended before it was killed")
	}
	release()
}

// Of two saves at the same time one fails, and the object is that of the other. A
// server without conditional completion has that of the last.
func TestConflict(t *testing.T) {
	each(t, func(t *testing.T, s *server) {
		url := "s3://" + bucket + "/conflict"
		first, second := random(threeParts, 5), random(threeParts, 6)
		arrived, release := s.hold(t, isComplete)
		slow := s.command(t, []string{"cp", writeFile(t, "first", first), url})
		var out bytes.Buffer
		slow.Stdout, slow.Stderr = &out, &out
		if err := slow.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, "completion", arrived)
		s.gate.Store(nil) // the second passes
		s.run(t, "cp", writeFile(t, "second", second), url)
		release()
		err, want := slow.Wait(), first
		if s.conditions {
			want = second
			if err == nil || !strings.Contains(out.String(), "the object is not the one that was expected") {
				t.Errorf("the first save: %v\n%s", err, &out)
			}
		} else if err != nil {
			t.Errorf("the first save: %v\n%s", err, &out)
		}
		if !bytes.Equal(s.get(t, url), want) {
			t.Error("the object is not that of the save that succeeded")
		}
	})
}

// Each mistake has its own sentence, whatever the server says.
func TestSentences(t *testing.T) {
	each(t, func(t *testing.T, s *server) {
		url, file := "s3://"+bucket+"/there", writeFile(t, "data", random(1000, 7))
		s.run(t, "cp", file, url)
		uses := func(url string) [][]string {
			return [][]string{{"cp", url, "gpu:0"}, {"ls", url + "/"}, {"cp", file, url}}
		}
		for _, args := range uses("s3://missing/there") {
			s.fails(t, "there is no bucket missing at "+s.endpoint, args)
		}
		s.fails(t, "there is no such object", []string{"cp", "s3://" + bucket + "/missing", "gpu:0"})
		for _, args := range uses(url) {
			if s.keys {
				s.fails(t, "the store does not know the access key", args, "AWS_ACCESS_KEY_ID=AKIDOTHER")
				s.fails(t, "the secret key does not belong to the access key", args, "AWS_SECRET_ACCESS_KEY=other")
			}
		}
		if s.bucketNames {
			s.fails(t, `"b" is not a name of a bucket`, []string{"cp", "s3://b/there", "gpu:0"})
		}
	})
}

// What culvert-store cannot serve, it refuses before it makes anything.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		words string
		args  []string
	}{
		{"b is not a name of a bucket", []string{"-bucket", "b", dir}},
		{"../out is not a name of a bucket", []string{"-bucket", "../out", dir}},
		{"no such file or directory (fix: mkdir ", []string{filepath.Join(dir, "missing")}},
		{"main.go is not a directory", []string{"main.go"}},
		{"want culvert-store [flags] DIR", nil},
		{"--cert with --key", []string{"-cert", "c.pem", dir}},
	} {
		err := run(t.Context(), c.args, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("culvert-store %q: %v, want %q", c.args, err, c.words)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v: %v", left, err)
	}
}
