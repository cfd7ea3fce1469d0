package arena_test

import (
	"errors"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

// resident returns a figure of /proc/self/status in bytes.
func resident(t *testing.T, field string) int64 {
	t.Helper()
	text := must.Get(os.ReadFile("/proc/self/status"))(t)
	_, after, _ := strings.Cut(string(text), field+":")
	n := must.Get(strconv.ParseInt(strings.Fields(after)[0], 10, 64))(t)
	return n << 10
}

// TestPopulated: all of the memory is there from the start, whatever it is made of.
func TestPopulated(t *testing.T) {
	const size, slack = 64 << 20, 8 << 20 // the runtime takes and gives back a few MiB of its own in between
	debug.FreeOSMemory()
	before := resident(t, "RssAnon") + resident(t, "HugetlbPages")
	a := open(t, &arena.Config{Size: size, Locals: 2})
	after := resident(t, "RssAnon") + resident(t, "HugetlbPages")
	if grown := after - before; grown < size-slack || grown > size+slack {
		t.Errorf("%d bytes more are resident, want %d", grown, size)
	}
	if s := a.Stats(); s.Mapped != size || s.Budget != size || s.Huge < 0 || s.Huge > size {
		t.Errorf("%+v", s)
	}
}

// TestPages: with PagesAuto the arena has the best pages that this process can have. It
// reports them, and the reason why it has no better ones.
func TestPages(t *testing.T) {
	a := open(t, &arena.Config{Size: 4 << 20, Locals: 1})
	t.Logf("%v; %v", a.Pages(), a.Fallback())
	why := ""
	if err := a.Fallback(); err != nil {
		why = err.Error()
	}
	reserved, transparent := arena.PagesReserved.String()+": ", arena.PagesTransparent.String()+": "
	huge := a.Stats().Huge
	switch a.Pages() {
	case arena.PagesReserved:
		if why != "" || huge != 4<<20 || feature.HugePages() != nil {
			t.Errorf("%d bytes of reserved pages, although %q; %v", huge, why, feature.HugePages())
		}
	case arena.PagesTransparent:
		if !strings.Contains(why, reserved) || huge == 0 || feature.TransparentHugePages() != nil {
			t.Errorf("%d bytes of transparent pages, because %q; %v", huge, why, feature.TransparentHugePages())
		}
	case arena.PagesPlain:
		if !strings.Contains(why, reserved) || !strings.Contains(why, transparent) || huge != 0 {
			t.Errorf("plain pages, because %q, and %d bytes of huge ones", why, huge)
		}
	default:
		t.Errorf("%v", a.Pages())
	}
}

// TestHugeAligned: the arena begins where a huge page can.
func TestHugeAligned(t *testing.T) {
	a := open(t, &arena.Config{Size: 6 << 20, Locals: 1})
	if a.Pages() == arena.PagesPlain {
		t.Skipf("there are no huge pages: %v", a.Fallback())
	}
	l := a.Local(0)
	h := get(t, l, 1, arena.Other)
	b, err := l.Bytes(h)
	if err != nil || h.Offset() != 0 || uintptr(unsafe.Pointer(&b[0]))%(2<<20) != 0 {
		t.Errorf("the slot at %d lies at %p, %v", h.Offset(), &b[0], err)
	}
	put(t, l, h)
}

// TestPlainInstead: a kernel that takes the advice and gives plain pages anyway is
// found out.
func TestPlainInstead(t *testing.T) {
	if feature.HugePages() == nil {
		t.Skip("there are pages set aside, which come first")
	}
	if !privilege.Refused(t, syscall.EPERM, sys.SYS_BPF) { // for a process of its own
		return
	}
	if err := sys.DisableTHP(); err != nil {
		t.Skip(err)
	}
	a := open(t, &arena.Config{Size: 4 << 20, Locals: 1})
	if a.Pages() != arena.PagesPlain || a.Stats().Huge != 0 || !strings.Contains(a.Fallback().Error(), "made of plain pages") {
		t.Errorf("%v, because %v", a.Pages(), a.Fallback())
	}
	put(t, a.Local(0), get(t, a.Local(0), 1, arena.Other))
	if _, err := arena.New(&arena.Config{Locals: 1, Pages: arena.PagesTransparent}); err == nil || !strings.Contains(err.Error(), "made of plain pages") {
		t.Errorf("requested transparent pages: %v", err)
	}
}

// TestPagesAsked: a configuration that requires one kind gets that or an error, and
// nothing else.
func TestPagesAsked(t *testing.T) {
	for p, works := range map[arena.Pages]error{
		arena.PagesReserved:    feature.HugePages(),
		arena.PagesTransparent: feature.TransparentHugePages(),
		arena.PagesPlain:       nil,
	} {
		a, err := arena.New(&arena.Config{Size: 100, Locals: 1, Pages: p})
		if (err == nil) != (works == nil) {
			t.Errorf("%v: %v, but the probe returns %v", p, err, works)
		}
		if err != nil {
			if !strings.Contains(err.Error(), p.String()) {
				t.Errorf("%v: %q does not name them", p, err)
			}
			continue
		}
		if s := a.Stats(); a.Pages() != p || a.Fallback() != nil || s.Budget != arena.ChunkSize {
			t.Errorf("requested %v, got %v, %v, a budget of %d", p, a.Pages(), a.Fallback(), s.Budget)
		}
		must.Do(t, a.Close())
	}
}

// TestSmallIsPlain: an arena smaller than a huge page does not take one.
func TestSmallIsPlain(t *testing.T) {
	a := open(t, &arena.Config{Size: 1 << 20, Locals: 1})
	if s := a.Stats(); a.Pages() != arena.PagesPlain || s.Mapped != 1<<20 {
		t.Errorf("%v, %d bytes", a.Pages(), s.Mapped)
	}
}

// TestDefaults: as much as is written down, for each P.
func TestDefaults(t *testing.T) {
	a := open(t, nil)
	n := runtime.GOMAXPROCS(0)
	if s := a.Stats(); a.Locals() != n || s.Budget != int64(n)*arena.DefaultSizePerLocal {
		t.Errorf("%d Locals share %d bytes", a.Locals(), s.Budget)
	}
}

// TestNoMadvise: where madvise(2) is refused, as by a kernel that does not know the
// advice or by a sandbox, there is memory anyway, and it is populated.
func TestNoMadvise(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EINVAL, syscall.EPERM, syscall.ENOSYS} {
		t.Run(strconv.Itoa(int(errno)), func(t *testing.T) {
			if !privilege.Refused(t, errno, sys.SYS_MADVISE) {
				return
			}
			before := resident(t, "RssAnon")
			a := open(t, &arena.Config{Size: 8 << 20, Locals: 1})
			if a.Pages() != arena.PagesPlain || !errors.Is(a.Fallback(), errno) {
				t.Errorf("%v, because %v", a.Pages(), a.Fallback())
			}
			if grown := resident(t, "RssAnon") - before; grown < 8<<20 {
				t.Errorf("%d bytes more are resident", grown)
			}
			// A page that was set aside may be withheld at the touch.
			if _, err := arena.New(&arena.Config{Size: 1, Locals: 1, Pages: arena.PagesReserved}); err == nil {
				t.Error("reserved pages that were not populated")
			}
			h := get(t, a.Local(0), 4096, arena.Other)
			put(t, a.Local(0), h)
		})
	}
}

// TestShortage: memory that the kernel does not have to give is an error.
func TestShortage(t *testing.T) {
	if !privilege.Refused(t, syscall.ENOMEM, sys.SYS_MADVISE) {
		return
	}
	_, err := arena.New(&arena.Config{Size: 8 << 20, Locals: 1})
	if !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "arena: new: 8388608 bytes: plain pages: madvise MADV_POPULATE_WRITE: ") {
		t.Errorf("%v", err)
	}
}

func TestTooLarge(t *testing.T) {
	_, err := arena.New(&arena.Config{Size: min(1<<40, math.MaxInt/2), Locals: 1, Pages: arena.PagesReserved})
	if !errors.Is(err, syscall.ENOMEM) && !errors.Is(err, syscall.EINVAL) {
		t.Errorf("more reserved pages than there are: %v", err)
	}
}

// TestMlock: an ordinary user may lock as much as RLIMIT_MEMLOCK allows. Beyond that
// New returns an error that names the limit.
func TestMlock(t *testing.T) {
	if !privilege.Ordinary(t) {
		return
	}
	limit := must.Get(sys.RlimitMemlock())(t)
	if limit >= 64<<20 || limit < 1<<20 {
		t.Skipf("RLIMIT_MEMLOCK is %d", limit)
	}
	before := resident(t, "VmLck")
	a := open(t, &arena.Config{Size: 512 << 10, Locals: 1, Mlock: true})
	if locked := resident(t, "VmLck") - before; locked != 512<<10 {
		t.Errorf("%d bytes are locked", locked)
	}
	must.Do(t, a.Close())
	if locked := resident(t, "VmLck"); locked != before {
		t.Errorf("%d bytes are locked after Close", locked)
	}
	_, err := arena.New(&arena.Config{Size: 64 << 20, Locals: 1, Mlock: true, Pages: arena.PagesPlain})
	if !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "RLIMIT_MEMLOCK is "+strconv.FormatUint(limit, 10)) {
		t.Errorf("beyond the limit: %v", err)
	}
}

// TestMlockRefused: nothing stays mapped.
func TestMlockRefused(t *testing.T) {
	if !privilege.Refused(t, syscall.EPERM, sys.SYS_MLOCK) {
		return
	}
	before := resident(t, "RssAnon")
	_, err := arena.New(&arena.Config{Size: 32 << 20, Locals: 1, Mlock: true})
	if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "RLIMIT_MEMLOCK") {
		t.Errorf("%v", err)
	}
	if grown := resident(t, "RssAnon") - before; grown > 16<<20 {
		t.Errorf("%d bytes are resident", grown)
	}
}

// ownNode returns a node of which this process may have memory.
func ownNode(t *testing.T) int {
	t.Helper()
	allowed, err := sys.MemsAllowed()
	if err == syscall.ENOSYS || err == syscall.EPERM {
		t.Skipf("get_mempolicy: %v", err)
	}
	must.Do(t, err)
	return allowed.Nodes()[0]
}

// TestNoNode: Locals with -1 are not bound.
func TestNoNode(t *testing.T) {
	a := must.Get(arena.New(&arena.Config{Size: 4 << 20, Locals: 2, Nodes: []int{-1, -1}}))(t)
	defer a.Close()
	l := a.Local(1)
	h := must.Get(l.Get(1, arena.Other))(t)
	b := must.Get(l.Bytes(h))(t)
	if mode, _, err := sys.MemPolicy(b); err != nil || mode != sys.MPOL_DEFAULT || l.Node() != -1 || a.Unbound() != nil {
		t.Errorf("node %d, policy %d, %v, %v", l.Node(), mode, err, a.Unbound())
	}
	must.Do(t, l.Put(h))
}

// TestNodes: a configured node is bound, and the kernel reports the same node for a
// slot's memory as the Local.
func TestNodes(t *testing.T) {
	node := ownNode(t)
	for _, p := range []arena.Pages{arena.PagesAuto, arena.PagesPlain} {
		a, err := arena.New(&arena.Config{Size: 4 << 20, Locals: 2, Pages: p, Nodes: []int{node, node}})
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) {
			t.Skip(err)
		}
		must.Do(t, err)
		for i := range a.Locals() {
			l := a.Local(i)
			h := get(t, l, 65536, arena.Read)
			b := must.Get(l.Bytes(h))(t)
			mode, mask, err := sys.MemPolicy(b)
			if err != nil || mode != sys.MPOL_BIND || !slices.Equal(mask.Nodes(), []int{node}) || l.Node() != node {
				t.Errorf("Local %d of node %d: policy %d for %v, %v", i, l.Node(), mode, mask.Nodes(), err)
			}
			if at, err := sys.NodeOf(b); err != nil || at != node {
				t.Errorf("Local %d: on node %d, %v", i, at, err)
			}
			put(t, l, h)
		}
		must.Do(t, a.Close())
	}
}

// TestNoSuchNode: nodes that are given and cannot be bound are an error.
func TestNoSuchNode(t *testing.T) {
	node := ownNode(t)
	_, err := arena.New(&arena.Config{Size: 1 << 20, Locals: 2, Nodes: []int{node, 1000}})
	if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "node 1000: mbind: ") && !errors.Is(err, syscall.EPERM) {
		t.Errorf("%v", err)
	}
}

func TestMbindRefused(t *testing.T) {
	node := ownNode(t)
	if !privilege.Refused(t, syscall.EPERM, sys.SYS_MBIND) {
		return
	}
	_, err := arena.New(&arena.Config{Size: 1 << 20, Locals: 1, Nodes: []int{node}})
	must.Is(t, err, syscall.EPERM)
	a := open(t, &arena.Config{Size: 1 << 20, Locals: 1}) // a Local that does not insist gets memory
	if n := a.Local(0).Node(); n != -1 {
		t.Errorf("bound to node %d", n)
	}
}
