package replay

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/internal/transcript"
)

var file = flag.String("transcript", "", "replay this file beside those of the tree")

func load(t *testing.T, path string) []*transcript.Conversation {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := transcript.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// onPurpose is the number of steps in which an emulated module differs from the
// real one on purpose. Others need an entry here and in the list of reasons.
var onPurpose = map[string]int{
	"gdrdrv callback":     12,
	"gdrdrv fault":        0,
	"gdrdrv refused-mmap": 2,
	"gdrdrv private":      10,
	"gdrdrv persistent":   0,
	"gpumem all":          5,
}

// reasons is the complete list.
var reasons = []string{gdrUnknownHandle, gdrForgotten, gdrPrivate, gpumemNotLocked, gpumemRevoked}

// TestReplay replays the recorded conversations on the emulated modules, once
// with the recorded bytes and once with the clients sending what they can.
func TestReplay(t *testing.T) {
	paths, err := filepath.Glob("../testdata/*.jsonl")
	if err != nil || len(paths) < 2 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	if *file != "" {
		paths = append(paths, *file)
	}
	for _, client := range []bool{false, true} {
		sent := map[string]int{}
		for _, path := range paths {
			for _, c := range load(t, path) {
				name := c.Module + " " + c.Name
				results, err := replay(c, client)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if len(results) != len(c.Steps) {
					t.Errorf("%s: %d of %d steps were done", name, len(results), len(c.Steps))
				}
				differ := 0
				for _, r := range results {
					if r.Failed() {
						t.Errorf("%s, client %v: %v", name, client, r)
					}
					if r.Diff != "" {
						differ++
						checkReason(t, r)
					}
					if r.Got.ByClient {
						sent[c.Module]++
					}
				}
				if want, known := onPurpose[name]; known && differ != want {
					t.Errorf("%s: %d steps differ on purpose, want %d", name, differ, want)
				}
			}
		}
		if client && (sent["gdrdrv"] < 85 || sent["gpumem"] < 14) || !client && len(sent) > 0 {
			t.Errorf("client %v: requests sent by it: %v", client, sent)
		}
	}
}

func checkReason(t *testing.T, r transcript.Result) {
	t.Helper()
	for _, reason := range reasons {
		if r.Reason == reason {
			return
		}
	}
	if !strings.HasPrefix(r.Reason, "rejected in step ") {
		t.Errorf("%s: no listed reason: %q", r.Name, r.Reason)
	}
}

// A recording with one byte, number or errno changed must not pass.
func TestReplayFindsLies(t *testing.T) {
	if testing.Short() {
		t.Skip("replays many times")
	}
	rng := rand.New(rand.NewPCG(1, 1))
	dir := t.TempDir()
	for _, path := range []string{"../testdata/gdrdrv.jsonl", "../testdata/gpumem.jsonl"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		for range 60 {
			lie, what := falsify(rng, lines)
			p := filepath.Join(dir, "lie.jsonl")
			if err := os.WriteFile(p, lie, 0o600); err != nil {
				t.Fatal(err)
			}
			if !differs(t, p) {
				t.Errorf("not found: %s", what)
			}
		}
	}
}

// differs reports whether a file cannot be replayed, or differs without reason.
func differs(t *testing.T, path string) bool {
	for _, c := range load(t, path) {
		results, err := replay(c, false)
		if err != nil || slices.ContainsFunc(results, transcript.Result.Failed) {
			return true
		}
	}
	return false
}

// excused are parts of the names of steps whose answers cannot be compared,
// because the emulated module rejected an earlier step.
var excused = []string{"quirk", "refused_second", "unlisted", "map.load", "map0.after_unpin", "map1.after_revoke"}

// falsify changes one recorded answer that no judge excuses.
func falsify(rng *rand.Rand, lines [][]byte) (text []byte, what string) {
	for {
		i := rng.IntN(len(lines))
		l := lines[i]
		switch {
		case slices.ContainsFunc(excused, func(s string) bool { return bytes.Contains(l, []byte(s)) }):
			continue
		case bytes.Contains(l, []byte(`"ret":0,"errno":0`)) && bytes.Contains(l, []byte(`"call":"ioctl"`)):
			l = bytes.Replace(l, []byte(`"ret":0,"errno":0`), []byte(`"ret":-1,"errno":5`), 1)
		case bytes.Contains(l, []byte(`"errno":22`)) && bytes.Contains(l, []byte(`"call":"ioctl"`)):
			l = bytes.Replace(l, []byte(`"errno":22`), []byte(`"errno":25`), 1)
		case bytes.Contains(l, []byte(`"out":"`)):
			at := bytes.Index(l, []byte(`"out":"`)) + 7
			if l[at] == '<' {
				continue
			}
			l = bytes.Clone(l)
			l[at] = "f0"[btoi(l[at] == 'f')]
		case bytes.Contains(l, []byte(`"knob":"live"`)):
			l = bytes.Replace(l, []byte(`"ret":`), []byte(`"ret":1`), 1)
		default:
			continue
		}
		lie := append([][]byte{}, lines...)
		lie[i] = l
		return bytes.Join(lie, []byte("\n")), string(l)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestUnknownModule(t *testing.T) {
	c := &transcript.Conversation{Module: "teapot"}
	if _, err := replay(c, false); err == nil || !strings.Contains(err.Error(), "teapot") {
		t.Errorf("got %v", err)
	}
}

// replay replays a conversation on the emulated module. With client, our client
// sends every request that it can; the rest, such as poisoned padding, is sent
// as recorded.
func replay(c *transcript.Conversation, client bool) ([]transcript.Result, error) {
	m, err := newMachine(c)
	if err != nil {
		return nil, err
	}
	if client {
		m.useClient()
	}
	results, err := transcript.Replay(c, m.Target)
	if err != nil {
		return nil, err
	}
	return results, m.close()
}
