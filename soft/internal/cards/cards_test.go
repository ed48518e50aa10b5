package cards

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func init() {
	jobs["hold"] = func(path string) error {
		c, err := Open(path, config())
		if err != nil {
			return err
		}
		fmt.Println("holds", len(takeFirst(c, 5)))
		waitForEnd()
		return nil
	}
	jobs["lock"] = func(path string) error {
		c, err := Open(path, config())
		if err != nil {
			return err
		}
		c.Lock()
		c.Card(0).Units.Take(7)
		c.head.Free[0] = -5 // in the middle of a change
		fmt.Println("locked")
		waitForEnd()
		return nil
	}
	jobs["press"] = press
	jobs["close descriptors"] = func(path string) error {
		c, err := Open(path, config())
		if err != nil {
			return err
		}
		if err := unix.Close(c.fd); err != nil {
			return err
		}
		fmt.Println("closed")
		waitForEnd()
		return nil
	}
	jobs["exec"] = func(path string) error {
		c, err := Open(path, config())
		if err != nil {
			return err
		}
		takeFirst(c, 4)
		return unix.Exec("/bin/sh", []string{"sh", "-c", "echo executed; read end"}, nil)
	}
}

// Random calls of several openers do what a plain model says: a unit is free when no
// opener uses it, memory has a name while an opener uses it, and no opener gets a unit
// that is taken.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "cards")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		m := &model{path: filepath.Join(dir, "shared"), users: map[int]map[*Cards]bool{}}
		m.open(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"open":  m.open,
			"close": m.close,
			"take":  m.take,
			"give":  m.give,
			"share": m.share,
			"join":  m.join,
			"":      m.check,
		})
		for len(m.openers) > 0 {
			m.close(rt)
		}
		if _, err := os.Stat(m.path); !errors.Is(err, fs.ErrNotExist) {
			rt.Fatalf("the last opener left the file: %v", err)
		}
	})
}

type model struct {
	path    string
	openers []*Cards
	users   map[int]map[*Cards]bool // by unit
	names   []named
}

// named is memory that was shared.
type named struct {
	Name
	units []int
	ended bool
}

func (m *model) one(t *rapid.T) *Cards {
	if len(m.openers) == 0 {
		t.Skip("no opener")
	}
	return m.openers[rapid.IntRange(0, len(m.openers)-1).Draw(t, "opener")]
}

func (m *model) open(t *rapid.T) {
	if len(m.openers) == 5 {
		t.Skip("enough")
	}
	c, err := Open(m.path, config())
	if err != nil {
		t.Fatal(err)
	}
	m.openers = append(m.openers, c)
}

func (m *model) close(t *rapid.T) {
	c := m.one(t)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	m.openers = without(m.openers, c)
	for u := range m.users {
		m.free(c, u)
	}
}

// free ends c's use of a unit, and with the last use the names of its memory.
func (m *model) free(c *Cards, u int) {
	delete(m.users[u], c)
	if len(m.users[u]) == 0 {
		for i := range m.names {
			n := &m.names[i]
			n.ended = n.ended || slices.Contains(n.units, u)
		}
	}
}

func without(list []*Cards, c *Cards) (out []*Cards) {
	for _, o := range list {
		if o != c {
			out = append(out, o)
		}
	}
	return out
}

func (m *model) use(c *Cards, units []int) {
	for _, u := range units {
		if m.users[u] == nil {
			m.users[u] = map[*Cards]bool{}
		}
		m.users[u][c] = true
	}
}

func (m *model) take(t *rapid.T) {
	c := m.one(t)
	got := takeFirst(c, rapid.IntRange(1, 6).Draw(t, "units"))
	for _, u := range got {
		if len(m.users[u]) > 0 {
			t.Fatalf("unit %d is taken and was given out", u)
		}
	}
	m.use(c, got)
}

// owned returns a unit that the opener uses.
func (m *model) owned(t *rapid.T, c *Cards) []int {
	var units []int
	for u := range count {
		if m.users[u][c] {
			units = append(units, u)
		}
	}
	if len(units) == 0 {
		t.Skip("uses nothing")
	}
	return units
}

func (m *model) give(t *rapid.T) {
	c := m.one(t)
	u := rapid.SampledFrom(m.owned(t, c)).Draw(t, "unit")
	units := []int{u}
	if n := m.named(u); n != nil {
		units = n.units // memory is freed as it was shared
	}
	c.Lock()
	for _, u := range units {
		c.Card(0).Units.Give(u)
	}
	c.Unlock()
	for _, u := range units {
		m.free(c, u)
	}
}

func (m *model) share(t *rapid.T) {
	c := m.one(t)
	// A unit is in one object, as it is in one allocation.
	var units []int
	for _, u := range rapid.Permutation(m.owned(t, c)).Draw(t, "units") {
		if m.named(u) == nil {
			units = append(units, u)
		}
	}
	if len(units) == 0 {
		t.Skip("all are shared")
	}
	c.Lock()
	n := c.Share(0, units)
	c.Unlock()
	m.names = append(m.names, named{n, units, false})
}

// named returns the shared memory that a unit is in, or nil.
func (m *model) named(u int) *named {
	for i := range m.names {
		if n := &m.names[i]; !n.ended && slices.Contains(n.units, u) {
			return n
		}
	}
	return nil
}

func (m *model) join(t *rapid.T) {
	c := m.one(t)
	if len(m.names) == 0 {
		t.Skip("nothing is shared")
	}
	n := m.names[rapid.IntRange(0, len(m.names)-1).Draw(t, "name")]
	c.Lock()
	got, err := c.Join(n.Name, false)
	c.Unlock()
	switch {
	case !n.ended && (err != nil || !slices.Equal(got, n.units)):
		t.Fatalf("join: %v, %v, want %v", got, err, n.units)
	case n.ended && !errors.Is(err, ErrStale):
		t.Fatalf("memory that was freed: %v, %v", got, err)
	}
	m.use(c, got)
}

func (m *model) check(t *rapid.T) {
	want := count
	for _, u := range m.users {
		if len(u) > 0 {
			want--
		}
	}
	for _, c := range m.openers {
		if got := free(c); got != want {
			t.Fatalf("%d units are free, want %d", got, want)
		}
	}
}

// What another process wrote is there, in the same units.
func TestProcessesSeeTheSameMemory(t *testing.T) {
	path := where(t)
	c := opened(t, path)
	defer c.Close()
	other := start(t, "hold", path)
	other.says(t, "holds 5")
	if n := free(c); n != count-5 {
		t.Errorf("%d units are free beside the 5 of the other process", n)
	}
	other.finish(t)
	if n := free(c); n != count {
		t.Errorf("%d units are free after the other process ended", n)
	}
}

// The units of a process that is killed are free again, and its place.
func TestKilledProcess(t *testing.T) {
	path := where(t)
	c := opened(t, path)
	defer c.Close()
	for range 3 {
		other := start(t, "hold", path)
		other.says(t, "holds 5")
		other.kill()
		if n := free(c); n != count {
			t.Fatalf("%d units are free after the kill", n)
		}
	}
	for i := range c.places {
		if i != c.me && c.places[i].Serial != 0 {
			t.Errorf("place %d is still that of process %d", i, c.places[i].PID)
		}
	}
}

// A zombie, which nobody has waited for, uses no memory.
func TestZombie(t *testing.T) {
	path := where(t)
	c := opened(t, path)
	defer c.Close()
	other := start(t, "hold", path)
	other.says(t, "holds 5")
	must(t, other.Process.Kill())
	var info unix.Siginfo // waits, and leaves the zombie
	must(t, unix.Waitid(unix.P_PID, other.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil))
	if n := free(c); n != count {
		t.Errorf("%d units are free beside a zombie", n)
	}
}

// A process that got the number of one that ended does not have its memory.
func TestReusedNumber(t *testing.T) {
	path := where(t)
	c := opened(t, path)
	defer c.Close()
	who, err := self()
	must(t, err)
	who.start--
	if who.lives() {
		t.Error("a process that began earlier lives")
	}
}

// A program that the process executes does not keep its memory.
func TestExecutedProgram(t *testing.T) {
	path := where(t)
	c := opened(t, path)
	defer c.Close()
	other := start(t, "exec", path)
	other.says(t, "executed")
	if n := free(c); n != count {
		t.Errorf("%d units are free after the process executed another program", n)
	}
}

// The lock of a process that was killed is taken over, and its count corrected.
func TestKilledWithLock(t *testing.T) {
	path := where(t)
	c := opened(t, path)
	defer c.Close()
	other := start(t, "lock", path)
	other.says(t, "locked")
	other.kill()
	if n := free(c); n != count {
		t.Errorf("%d units are free after the owner of the lock was killed", n)
	}
}

// A lock that is waited for arrives.
func TestLockIsPassedOn(t *testing.T) {
	path := where(t)
	a, b := opened(t, path), opened(t, path)
	defer a.Close()
	defer b.Close()
	a.Lock()
	got := make(chan struct{})
	go func() {
		b.Lock()
		close(got)
	}()
	for atomic.LoadUint32(&a.head.Lock)&waited == 0 {
		runtime.Gosched() // until b waits
	}
	select {
	case <-got:
		t.Fatal("two have the lock")
	default:
	}
	a.Unlock()
	<-got
	b.Unlock()
}

// A process that waits for the lock is woken, and does not need its patience.
func TestWaiterIsWoken(t *testing.T) {
	path := where(t)
	a, b := opened(t, path), opened(t, path)
	defer a.Close()
	defer b.Close()
	start := time.Now()
	const rounds = 200
	for range rounds {
		a.Lock()
		got := make(chan struct{})
		go func() {
			takeFirst(b, 0)
			close(got)
		}()
		for atomic.LoadUint32(&a.head.Lock)&waited == 0 {
			runtime.Gosched()
		}
		a.Unlock()
		<-got
	}
	if took := time.Since(start); took > rounds*patience*3/4 {
		t.Errorf("%d rounds took %v: a waiter sleeps for %v if it is not woken", rounds, took, patience)
	}
}

// press takes and gives units at random, writes its number into each, and looks whether
// it is still there.
func press(path string) error {
	c, err := Open(path, config())
	if err != nil {
		return err
	}
	fmt.Println("begins")
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	me := uint64(os.Getpid())
	card := c.Card(0)
	mark := func(u int) []byte { return card.Memory[u*unit : u*unit+8] }
	var mine []int
	for range 20_000 {
		got := takeFirst(c, 1+rng.IntN(4))
		for _, u := range got {
			binary.NativeEndian.PutUint64(mark(u), me)
		}
		mine = append(mine, got...)
		for rng.IntN(3) > 0 && len(mine) > 0 {
			i := rng.IntN(len(mine))
			u := mine[i]
			mine = append(mine[:i], mine[i+1:]...)
			if n := binary.NativeEndian.Uint64(mark(u)); n != me {
				return fmt.Errorf("unit %d of process %d has the mark of %d", u, me, n)
			}
			c.Lock()
			card.Units.Give(u)
			c.Unlock()
		}
	}
	return c.Close()
}

// Processes that allocate and free as fast as they can never get the same unit twice,
// while others of them are killed.
func TestPressure(t *testing.T) {
	path := where(t)
	c := opened(t, path)
	defer c.Close()
	var victims, others []*child
	for i := range 6 {
		p := start(t, "press", path)
		if i%2 == 0 {
			victims = append(victims, p)
		} else {
			others = append(others, p)
		}
	}
	for _, p := range victims {
		p.says(t, "begins")
		p.kill()
	}
	for _, p := range others {
		p.says(t, "begins")
		p.finish(t)
	}
	if n := free(c); n != count {
		t.Errorf("%d of %d units are free at the end", n, count)
	}
}

// A process that closes descriptors of others keeps its memory, and newcomers are told
// why they cannot have it.
func TestClosedDescriptors(t *testing.T) {
	path := where(t)
	other := start(t, "close descriptors", path)
	other.says(t, "closed")
	_, err := Open(path, config())
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "process "+strconv.Itoa(other.Process.Pid)) {
		t.Errorf("memory that its process closed: %v", err)
	}
	other.finish(t)
	must(t, opened(t, path).Close())
}

// A file that is not one of shared memory is refused by name and left as it is.
func TestRefusedFiles(t *testing.T) {
	good := func(path string) {
		c := opened(t, path)
		t.Cleanup(func() { c.Close() })
	}
	edit := func(at int64, text string) func(string) {
		return func(path string) {
			good(path)
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			must(t, err)
			_, err = f.WriteAt([]byte(text), at)
			must(t, errors.Join(err, f.Close()))
		}
	}
	write := func(text string, mode os.FileMode) func(string) {
		return func(path string) {
			must(t, os.WriteFile(path, []byte(text), mode))
			must(t, os.Chmod(path, mode))
		}
	}
	for name, c := range map[string]struct {
		make func(path string)
		want string
	}{
		"text":           {write("a shopping list\n", 0o600), "not a file of shared GPU memory"},
		"a later format": {edit(15, "00000002"), "version 2 of shared GPU memory, this is version 1"},
		"cut short": {func(path string) {
			good(path)
			must(t, os.Truncate(path, fileSize-1))
		}, "bytes, not"},
		"a damaged line": {edit(headSize+2*lineSize, "x"), "line 4 is damaged"},
		"other memory":   {edit(24, "0123456789abcdef"), "not of GPUs"},
		"a namespace":    {edit(58, "0000000000000001"), "another PID namespace"},
		"a false file":   {edit(41, "0000000000000001"), "another file"},
		"for others":     {write("", 0o644), "must be 0600"},
		"a directory":    {func(path string) { must(t, os.Mkdir(path, 0o700)) }, "is a directory"},
		"a link":         {func(path string) { must(t, os.Symlink(path+"2", path)) }, "symbolic links"},
		"a pipe":         {func(path string) { must(t, unix.Mkfifo(path, 0o600)) }, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := where(t)
			c.make(path)
			o, err := Open(path, config())
			if err == nil {
				o.Close()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q and the path", err, c.want)
			}
		})
	}
}

// What one user shares another one does not use, and the error says how that has GPUs.
func TestRefusedUser(t *testing.T) {
	path := where(t)
	must(t, os.WriteFile(path, nil, 0o600))
	if err := os.Chown(path, 65534, -1); err != nil {
		t.Skipf("needs root: %v", err)
	}
	_, err := Open(path, config())
	if err == nil || !strings.Contains(err.Error(), "a file of user 65534, not of user 0 (fix: run processes of another user with CULVERT_SHARED= in") {
		t.Error(err)
	}
}

// Cards that differ are refused, and the error says how.
func TestRefusedSettings(t *testing.T) {
	path := where(t)
	defer opened(t, path).Close()
	cfg := config()
	cfg.Settings = "one card"
	_, err := Open(path, cfg)
	if err == nil || !strings.Contains(err.Error(), `theirs "two cards", here "one card"`) || !strings.Contains(err.Error(), path) {
		t.Errorf("other settings: %v", err)
	}
	cfg = config()
	cfg.Sizes[0] *= 2
	cfg.Sizes[0] *= 32 // the size of the memory is a multiple of 2 MiB
	if _, err = Open(path, cfg); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a larger card: %v", err)
	}
}

// Damage that another process does to the memory gives errors, nothing worse.
func TestDamagedObjects(t *testing.T) {
	path := where(t)
	a, b := opened(t, path), opened(t, path)
	defer a.Close()
	defer b.Close()
	units := takeFirst(a, 4)
	a.Lock()
	n := a.Share(0, units)
	a.Unlock()
	card := a.Card(0)
	whole := *card
	wholeObject, next := whole.objects[units[0]], append([]uint32(nil), whole.next...)
	for name, damage := range map[string]func(){
		"no units":       func() { card.objects[units[0]].Count = 0 },
		"too many units": func() { card.objects[units[0]].Count = 1 << 31 },
		"a unit outside": func() { card.next[units[1]] = 1 << 30 },
		"a circle":       func() { card.next[units[2]] = uint32(units[0]) },
		"a free unit":    func() { card.next[units[1]] = count - 1 },
	} {
		damage()
		b.Lock()
		if got, err := b.Join(n, false); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		b.Unlock()
		card.objects[units[0]] = wholeObject
		copy(card.next, next)
	}
	for name, stale := range map[string]Name{
		"another card": {ID: n.ID, Card: 1, Unit: n.Unit},
		"no card":      {ID: n.ID, Card: 1 << 31, Unit: n.Unit},
		"no unit":      {ID: n.ID, Unit: 1 << 31},
		"a guess":      {ID: n.ID + 2, Unit: n.Unit},
		"nothing":      {Unit: uint32(units[1])},
	} {
		b.Lock()
		if got, err := b.Join(stale, false); !errors.Is(err, ErrStale) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		b.Unlock()
	}
}

// The owner of a name must still use the memory, if that is asked for.
func TestOwned(t *testing.T) {
	path := where(t)
	a, b := opened(t, path), opened(t, path)
	defer b.Close()
	units := takeFirst(a, 2)
	a.Lock()
	n := a.Share(0, units)
	a.Unlock()
	b.Lock()
	_, err := b.Join(n, true)
	b.Unlock()
	must(t, err)
	must(t, a.Close())
	b.Lock()
	defer b.Unlock()
	if _, err := b.Join(n, true); !errors.Is(err, ErrStale) {
		t.Errorf("memory that its owner freed: %v", err)
	}
	if _, err := b.Join(n, false); err != nil {
		t.Errorf("memory that b uses: %v", err)
	}
}

// More processes than there are places are refused.
func TestPlaces(t *testing.T) {
	path := where(t)
	c := opened(t, path)
	defer c.Close()
	me, err := self()
	must(t, err)
	for i := range c.places {
		if i != c.me {
			c.places[i].set(me, 99)
		}
	}
	if _, err := Open(path, config()); err == nil || !strings.Contains(err.Error(), "256 processes") {
		t.Errorf("one too many: %v", err)
	}
	for i := range c.places {
		if i != c.me {
			c.places[i] = place{}
		}
	}
}

// NewPath removes what killed processes left, and nothing that is in use or not its own.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	killed := NewPath(dir)
	other := start(t, "hold", killed)
	other.says(t, "holds 5")
	used := NewPath(dir)
	c := opened(t, used)
	defer c.Close()
	foreign := filepath.Join(dir, fmt.Sprintf("culvert-shared-%d-list", os.Geteuid()))
	must(t, os.WriteFile(foreign, []byte("a shopping list\n"), 0o600))
	if _, err := os.Stat(killed); err != nil {
		t.Errorf("a file in use: %v", err)
	}
	other.kill()
	if next := NewPath(dir); next == killed || next == used {
		t.Errorf("%s was used before", next)
	}
	if _, err := os.Stat(killed); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of a killed process: %v", err)
	}
	for _, path := range []string{used, foreign} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if err := Remove(used); !errors.Is(err, unix.EBUSY) {
		t.Errorf("remove a file in use: %v", err)
	}
}

// A process that leaves keeps its memory, and the last one removes the file.
func TestLeave(t *testing.T) {
	path := where(t)
	other := start(t, "hold", path)
	other.says(t, "holds 5")
	c := opened(t, path)
	must(t, c.Leave())
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the file of another process: %v", err)
	}
	if got := len(takeFirst(c, count)); got != count-5 {
		t.Errorf("took %d units after leaving, want %d", got, count-5)
	}
	other.kill()
	must(t, c.Leave())
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the last process has left: %v", err)
	}
	next := opened(t, path)
	defer next.Close()
	must(t, c.Close())
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file of the next processes: %v", err)
	}
}

// A limit on the size of files is an error, not a signal.
func TestFileSizeLimit(t *testing.T) {
	if os.Getenv("CARDS_LIMIT") == "" {
		exe, err := os.Executable()
		must(t, err)
		cmd := exec.Command(exe, "-test.run", "^TestFileSizeLimit$")
		cmd.Env = append(os.Environ(), "CARDS_LIMIT=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: unix.RLIM_INFINITY}))
	if _, err := Open(where(t), config()); err == nil || !strings.Contains(err.Error(), "limit on the size of files") {
		t.Errorf("a limit of 1 MiB: %v", err)
	}
}

func TestParseStat(t *testing.T) {
	p, state, err := parseStat("26141 (a) Z (b) S 1 2 3 0 -1 4194304 2969 6541 5 2 0 3 2 2 20 0 1 0 107686 17354752 3484 18446744073709551615 94430508167168 94430508167509 140726542212048 0 0")
	if want := (process{26141, 107686, 140726542212048}); err != nil || p != want || state != "S" {
		t.Errorf("%+v %s %v, want %+v", p, state, err, want)
	}
	for _, text := range []string{"", "1", "1 (x) S", "x (x) S 1 2 3 0 -1 4194304 2969 6541 5 2 0 3 2 2 20 0 1 0 1 2 3 4 5 6 7"} {
		if _, _, err := parseStat(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func FuzzParseDirectory(f *testing.F) {
	text, err := os.ReadFile("testdata/formats/v1/shared")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(text[:headSize])
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, lines, err := parseDirectory(text); err == nil && len(lines) != maxProcesses {
			t.Errorf("%d lines", len(lines))
		}
	})
}
