package state_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/hung"
	"github.com/penstock/penstock/proxy/internal/state"
)

func open(t *testing.T, path string) *state.Store {
	t.Helper()
	s := state.Open(path)
	t.Cleanup(func() { s.Close() })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same[T any](t *testing.T, want, got T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// isTaken expects that another process has the file.
func isTaken(t *testing.T, path string) {
	t.Helper()
	if s := open(t, path); !errors.Is(s.Err(), state.ErrTaken) {
		t.Error("two processes have the file:", s.Err())
	}
}

var (
	then    = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	changes = []state.Change{
		{Kind: state.EndpointWeight, Upstream: "u", Endpoint: "a", Value: "5", Line: "weight: 1", By: "uid=1", Since: then},
		{Kind: state.EndpointAdded, Upstream: "u", Endpoint: "b", Added: &state.Endpoint{Address: "127.0.0.1:80", Name: "b", Weight: 2}, By: "uid=1", Since: then},
	}
	denials = []state.Denial{{Source: "192.0.2.0/24", Listener: "l", Until: then, By: "uid=1", Since: then}}
)

// TestStore: the content that is set and flushed is there for the next process, and the file is its owner's alone.
func TestStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "penstock.state")
	s := open(t, path)
	if err := errors.Join(s.Err(), s.Corrupt()); err != nil || len(s.Changes()) != 0 {
		t.Fatal(err, s.Changes())
	}
	s.SetChanges(changes)
	s.SetDenials(denials)
	must(t, s.Flush())
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	must(t, s.Close())
	next := open(t, path)
	must(t, next.Err())
	same(t, changes, next.Changes())
	same(t, denials, next.Denials())
	if list, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(list) > 0 {
		t.Errorf("left over: %q", list)
	}
}

// TestFileIsRemoved: a Flush writes a removed file again, though nothing has changed since. Close leaves it removed.
func TestFileIsRemoved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "penstock.state")
	s := open(t, path)
	s.SetDenials(denials)
	must(t, s.Flush())
	for range 2 {
		must(t, os.Remove(path))
		must(t, s.Flush())
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	must(t, os.Remove(path))
	must(t, s.Close())
	if _, err := os.Stat(path); err == nil {
		t.Error("Close has written it again")
	}
}

// TestFlushesShareAWrite: changes that are made while the file is written are in the next write, all of them, and a
// Flush returns once its own change is in the file.
func TestFlushesShareAWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "penstock.state")
	s := open(t, path)
	s.SetDenials([]state.Denial{{Source: "198.51.100.1", Until: then, Since: then}})
	must(t, s.Flush()) // so that the file is there: a Flush that misses it writes
	writes, begun, goOn := 0, make(chan bool, 1), make(chan bool)
	s.BeforeWrite(func() {
		if writes++; writes == 1 {
			begun <- true
			<-goOn
		}
	})
	const clients = 50
	var all []state.Denial
	var set, done sync.WaitGroup
	var mu sync.Mutex
	change := func(i int) {
		mine := fmt.Sprintf("192.0.2.%d", i)
		mu.Lock()
		all = append(all, state.Denial{Source: mine, Until: then, Since: then})
		s.SetDenials(all)
		mu.Unlock()
		set.Done()
		if err := s.Flush(); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), `"`+mine+`"`) {
			t.Errorf("%s is not in the file: %v", mine, err)
		}
	}
	set.Add(1 + clients)
	done.Go(func() { change(0) })
	<-begun
	for i := range clients {
		done.Go(func() { change(1 + i) })
	}
	set.Wait() // in the store; the first write, which has none of them, is not over
	close(goOn)
	done.Wait()
	if writes != 2 {
		t.Errorf("%d writes, want 2", writes)
	}
	must(t, s.Close())
	same(t, all, open(t, path).Denials())
}

// TestDenialsThatChange: each write has the denials of the moment, those that were written before, too.
func TestDenialsThatChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "penstock.state")
	s := open(t, path)
	denial := func(source string, hours int) state.Denial {
		return state.Denial{Source: source, Listener: "<l>", Until: then.Add(time.Duration(hours) * time.Hour), By: "uid=1", Since: then}
	}
	for _, list := range [][]state.Denial{
		{denial("a", 1), denial("b", 1)},
		{denial("a", 1), denial("b", 2), denial("c", 1)},
		{denial("c", 1), denial("a", 1)},
		nil,
		{denial("b", 1)},
	} {
		s.SetDenials(list)
		s.SetChanges(changes)
		must(t, s.Flush())
		copied := filepath.Join(t.TempDir(), "copy")
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(copied, text, 0o600)
		}
		next := open(t, copied)
		if d := cmp.Diff(list, next.Denials()) + cmp.Diff(changes, next.Changes()); d != "" || err != nil || next.Err() != nil {
			t.Errorf("%v, %v %s", err, next.Err(), d)
		}
	}
}

// TestStoreOfTwoProcesses: one process at a time has the file, and a process that has left it writes no
// more to it.
func TestStoreOfTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "penstock.state")
	first := open(t, path)
	first.SetChanges(changes[:1])
	second := open(t, path)
	second.SetChanges(nil)
	if err := second.Flush(); !errors.Is(err, state.ErrTaken) || !errors.Is(second.Err(), state.ErrTaken) {
		t.Errorf("%v, %v", err, second.Err())
	}
	must(t, first.Close())
	third := open(t, path)
	same(t, changes[:1], third.Changes())
	first.SetChanges(nil)
	if err := first.Flush(); !errors.Is(err, state.ErrClosed) || !strings.HasSuffix(err.Error(), "a successor may use the file now") {
		t.Error(err)
	}
	third.SetChanges(changes)
	must(t, third.Close())
	if got := open(t, path).Changes(); len(got) != 2 {
		t.Errorf("%+v", got)
	}
}

// TestFileIsTakenLater: a process that began while another one had the file takes it once that one has left it. What the file
// has stays until the process has something of its own. A process that has ended before takes it no more.
func TestFileIsTakenLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "penstock.state")
	first := open(t, path)
	first.SetChanges(changes)
	unchanged, changed, ended := open(t, path), open(t, path), open(t, path)
	unchanged.SetDenials(nil)
	changed.SetChanges(changes[:1])
	if err := errors.Join(unchanged.Flush(), changed.Flush()); !errors.Is(err, state.ErrTaken) {
		t.Error(err)
	}
	must(t, ended.Close())
	must(t, first.Close())
	if err := ended.Flush(); err != nil || !errors.Is(ended.Err(), state.ErrClosed) {
		t.Error(err, ended.Err())
	}
	must(t, unchanged.Flush())
	must(t, unchanged.Err())
	isTaken(t, path)
	must(t, unchanged.Close())
	next := open(t, path)
	same(t, changes, next.Changes())
	must(t, next.Close())
	must(t, changed.Flush())
	must(t, changed.Err())
	must(t, changed.Close())
	same(t, changes[:1], open(t, path).Changes())
}

// TestSuccessorWaits: a successor gets the file of a process that is about to leave it.
func TestSuccessorWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "penstock.state")
	first := open(t, path)
	first.SetChanges(changes)
	opened := make(chan *state.Store)
	go func() { opened <- state.Open(path) }()
	must(t, first.Close())
	next := <-opened
	defer next.Close()
	must(t, next.Err())
	same(t, changes, next.Changes())
}

// TestLockFileIsRemoved: a lock file that was removed before it was locked is not the lock, and two processes never have
// the file.
func TestLockFileIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "penstock.state")
	removed := 0
	remove := func(times int) func() {
		removed = 0
		return func() {
			if removed++; removed <= times {
				must(t, os.Remove(path+".lock"))
			}
		}
	}
	first := state.OpenWith(path, remove(2))
	if err := first.Err(); err != nil || removed != 3 {
		t.Fatal(err, removed)
	}
	isTaken(t, path)

	// A successor waits meanwhile: it has the removed one open.
	first.SetChanges(changes)
	opens := 0
	next := state.OpenWith(path, func() {
		if opens++; opens > 1 {
			return
		}
		must(t, errors.Join(os.Remove(path+".lock"), first.Close()))
		third := open(t, path) // this one finds no lock file, or that of first
		must(t, third.Close())
	})
	defer next.Close()
	if d := cmp.Diff(changes, next.Changes()); d != "" || next.Err() != nil || opens != 2 {
		t.Error(next.Err(), opens, d)
	}
	isTaken(t, path)

	path = filepath.Join(t.TempDir(), "penstock.state")
	if endless := state.OpenWith(path, remove(1000)); endless.Err() == nil || removed == 1000 {
		t.Error(endless.Err(), removed)
	}
}

// TestLockFileIsRemovedLater: the owner notices at its next write. It takes the file again, unless another process has it.
func TestLockFileIsRemovedLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "penstock.state")
	remove := func() { must(t, os.Remove(path+".lock")) }
	first := open(t, path)
	remove()
	first.SetChanges(changes[:1])
	must(t, first.Flush())
	isTaken(t, path)
	remove()
	third := open(t, path)
	third.SetChanges(changes)
	must(t, third.Flush())
	first.SetChanges(nil)
	if err := first.Flush(); !errors.Is(err, state.ErrTaken) || !errors.Is(first.Err(), state.ErrTaken) {
		t.Error(err, first.Err())
	}
	must(t, third.Close())
	fourth := open(t, path)
	same(t, changes, fourth.Changes())
	must(t, fourth.Close())
	if err := first.Flush(); err != nil || first.Err() != nil {
		t.Error(err, first.Err())
	}
}

// TestCorruptFile: a file of changes that is not understood is refused, and kept aside.
func TestCorruptFile(t *testing.T) {
	for name, text := range map[string]string{
		"torn":            "{\n  \"changes\": [\n    {\n      \"kind\": \"endp",
		"torn early":      "{\n  \"chan",
		"empty":           "",
		"no version":      `{"changes": []}`,
		"another version": `{"version": 2, "changes": []}`,
		"no list":         `{"version": 1, "changes": {}}`,
		"no endpoint":     `{"version": 1, "changes": [{"kind": "endpoint added", "upstream": "u"}]}`,
		"denials":         `{"version": 1, "changes": [], "denials": 7}`,
	} {
		t.Run(name, func(t *testing.T) {
			path, link := filepath.Join(t.TempDir(), "penstock.state"), filepath.Join(t.TempDir(), "link")
			must(t, os.WriteFile(path, []byte(text), 0o600))
			must(t, os.Symlink(path, link))
			s := open(t, link)
			if err := s.Corrupt(); !errors.Is(err, state.ErrCorrupt) || !strings.Contains(err.Error(), "was renamed to "+path+".corrupt-") || len(s.Changes()) != 0 {
				t.Errorf("%v, %v", err, s.Changes())
			}
			aside, _ := filepath.Glob(path + ".corrupt-*")
			if len(aside) != 1 {
				t.Fatalf("%q", aside)
			}
			if kept, err := os.ReadFile(aside[0]); err != nil || string(kept) != text {
				t.Errorf("%q, %v", kept, err)
			}
			s.SetChanges(changes)
			must(t, s.Flush())
		})
	}
}

// TestForeignFile: a file that is none of changes, or cannot be read, stays as it is, and the store keeps nothing.
func TestForeignFile(t *testing.T) {
	for name, text := range map[string]string{
		"key":           "-----BEGIN PRIVATE KEY-----\nMIG=\n-----END PRIVATE KEY-----\n",
		"configuration": "listeners: [{name: l, bind: ':80', upstream: u}]\n",
		"JSON":          `{"name": "shop", "version": "1.2.3"}`,
		"JSON, version": `{"version": 1, "name": "shop"}`,
		"list":          `["127.0.0.1:80"]`,
		"object":        `{}`,
		"changes":       `{"changes": "none", "of": "ours"}`,
		"zeros":         strings.Repeat("\x00", 4096),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "penstock.state")
			must(t, os.WriteFile(path, []byte(text), 0o600))
			expectForeign(t, path)
			if kept, err := os.ReadFile(path); err != nil || string(kept) != text {
				t.Errorf("%q, %v", kept, err)
			}
		})
	}
	t.Run("directory", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "penstock.state")
		must(t, os.Mkdir(path, 0o700))
		expectForeign(t, path)
	})
	t.Run("unreadable", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "penstock.state")
		must(t, os.Symlink("penstock.state", path)) // a link to itself, which root cannot read either
		expectForeign(t, path)
	})
	t.Run("of another user", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("needs root, to have a file of another user")
		}
		path := filepath.Join(t.TempDir(), "penstock.state")
		s := open(t, path)
		s.SetChanges(changes)
		must(t, s.Flush())
		must(t, s.Close())
		must(t, os.Chown(path, 65534, 65534))
		expectForeign(t, path)
	})
}

// expectForeign opens and changes a store, and expects the path to be the only file beside its lock.
func expectForeign(t *testing.T, path string) {
	t.Helper()
	before, _ := os.Lstat(path)
	s := open(t, path)
	s.SetChanges(changes)
	if err := s.Flush(); !errors.Is(err, state.ErrForeign) || !errors.Is(s.Err(), state.ErrForeign) || s.Corrupt() != nil {
		t.Errorf("%v, %v, %v", err, s.Err(), s.Corrupt())
	}
	must(t, s.Close())
	if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
		t.Error("it was replaced", err)
	}
	if list, _ := filepath.Glob(path + "*"); len(list) > 2 {
		t.Errorf("%q", list)
	}
}

// TestUnknownContent: keys and kinds of another version of the program stay in the file.
func TestUnknownContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "penstock.state")
	const text = `{"version": 1, "moon": {"phase": 3}, "changes": [{"kind": "moon shifted", "value": 7}]}`
	must(t, os.WriteFile(path, []byte(text), 0o600))
	s := open(t, path)
	s.SetChanges(changes[:1])
	must(t, s.Close())
	var got struct {
		Moon    struct{ Phase int }
		Changes []struct {
			Kind  string
			Value any
		}
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil || got.Moon.Phase != 3 || len(got.Changes) != 2 || got.Changes[1].Kind != "moon shifted" || got.Changes[1].Value != 7.0 {
		t.Errorf("%v: %s", err, data)
	}
}

// TestUnwritable: where nothing can be written there is an error, and the content is written when it can be.
func TestUnwritable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	s := open(t, filepath.Join(dir, "penstock.state"))
	if !errors.Is(s.Err(), os.ErrNotExist) {
		t.Error(s.Err())
	}
	s.SetChanges(changes)
	if err := s.Flush(); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	must(t, os.Mkdir(dir, 0o700))
	later := open(t, filepath.Join(dir, "penstock.state"))
	must(t, os.Rename(dir, dir+".away"))
	later.SetChanges(changes)
	if err := later.Flush(); err == nil || later.Err() == nil {
		t.Error("a directory that is gone is written to")
	}
	must(t, os.Rename(dir+".away", dir))
	if err := later.Flush(); err != nil || later.Err() != nil {
		t.Error(err, later.Err())
	}
}

// TestHungFileSystem: a write that does not return is given up, and what was set meanwhile is written once the file
// system answers. Before that the store says that it keeps nothing, and a new store cannot be opened there.
func TestHungFileSystem(t *testing.T) {
	t.Parallel()
	dir := hung.Dir(t)
	path := filepath.Join(dir, "penstock.state")
	s := open(t, path)
	must(t, s.Flush())
	release := hung.Mount(t, dir)
	flushes := func(changes []state.Change) {
		t.Helper()
		s.SetChanges(changes)
		if err := s.Flush(); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), path) || !errors.Is(s.Err(), os.ErrDeadlineExceeded) {
			t.Error(err, s.Err())
		}
	}
	flushes(changes[:1])
	flushes(changes)
	if later := state.Open(filepath.Join(dir, "other.state")); !errors.Is(later.Err(), os.ErrDeadlineExceeded) {
		t.Error(later.Err())
	}
	release()
	condition.Await(t, "the changes are written", func() bool { return s.Flush() == nil })
	must(t, s.Err())
	must(t, s.Close())
	same(t, changes, open(t, path).Changes())
}
