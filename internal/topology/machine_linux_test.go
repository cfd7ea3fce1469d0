package topology

import (
	"errors"
	"io/fs"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

func TestMain(m *testing.M) { leak.Main(m) }

// TestMachine: what is not there, what cannot be read and what makes no sense are told apart.
func TestMachine(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	two := fstest.MapFS{presentFile: file("0-7\n"), onlineFile: file("0-1\n")}
	if c, err := cpus(two); err != nil || c.String() != "0-7" {
		t.Errorf("%v, %v", c, err)
	}
	if n, err := nodes(two); err != nil || n.String() != "0-1" {
		t.Errorf("%v, %v", n, err)
	}
	if _, err := nodes(fstest.MapFS{presentFile: file("0\n")}); err != ErrNoNUMA {
		t.Errorf("without NUMA: %v", err)
	}
	must.Fail(nodes(fstest.MapFS{}))(t, fs.ErrNotExist)
	for _, text := range []string{"", "x"} {
		if c, err := cpus(fstest.MapFS{presentFile: file(text)}); err == nil {
			t.Errorf("%q: %v", text, c)
		}
	}
}

// TestHere: the machine has the CPUs and nodes that the process may use.
func TestHere(t *testing.T) {
	present, err1 := CPUs()
	allowed, err2 := AllowedCPUs()
	if err := errors.Join(err1, err2); err != nil || len(allowed) == 0 || len(allowed.Without(present)) > 0 {
		t.Errorf("%v of %v, %v", allowed, present, err)
	}
	nodes, err := Nodes()
	if err == ErrNoNUMA {
		t.Skip(err)
	}
	if err != nil || len(nodes) == 0 {
		t.Fatalf("%v, %v", nodes, err)
	}
	if near, err := CPUsOf(nodes[0]); err != nil || len(near.Without(present)) > 0 {
		t.Errorf("%v, %v", near, err)
	}
}

// masks are the different sets of CPUs that the threads of this process have.
func masks(t *testing.T) (different []string) {
	t.Helper()
	threads := must.Get(Threads())(t)
	for _, tid := range threads {
		mask, err := sys.SchedGetaffinity(tid)
		if err == syscall.ESRCH {
			continue
		}
		must.Do(t, err)
		different = append(different, Set(mask.CPUs()).String())
	}
	slices.Sort(different)
	return slices.Compact(different)
}

// TestConfine: all threads have the CPUs, those that are started meanwhile and later as well, and
// all get back those that they had. No right is needed for that.
func TestConfine(t *testing.T) {
	if !privilege.Ordinary(t) {
		return
	}
	had := must.Get(AllowedCPUs())(t)
	stop, starting := make(chan struct{}), sync.WaitGroup{}
	starting.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				threads(4)
			}
		}
	})
	to := Set{had[len(had)-1]}
	restore, err := Confine(to)
	close(stop)
	starting.Wait()
	must.Do(t, err)
	threads(20)
	if got := masks(t); !slices.Equal(got, []string{to.String()}) {
		t.Errorf("confined to %v: %v", to, got)
	}
	must.Do(t, restore())
	if got := masks(t); !slices.Equal(got, []string{had.String()}) {
		t.Errorf("restored to %v: %v", had, got)
	}
}

// threads has the runtime start so many, at least.
func threads(n int) {
	var all sync.WaitGroup
	begin := make(chan struct{})
	for range n {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			<-begin
		})
	}
	close(begin)
	all.Wait()
}

// TestConfineRefused: a CPU that the process may not have is named, and nothing changes.
func TestConfineRefused(t *testing.T) {
	had := must.Get(AllowedCPUs())(t)
	for _, to := range []Set{{Highest}, {had[0], Highest}} {
		restore, err := Confine(to)
		if !errors.Is(err, ErrNotAllowed) || err.Error() != "CPU 8191 is not allowed for this process" || restore != nil {
			t.Errorf("%v: %v", to, err)
		}
		if got := masks(t); !slices.Equal(got, []string{had.String()}) {
			t.Errorf("after %v: %v, had %v", to, got, had)
		}
	}
}
