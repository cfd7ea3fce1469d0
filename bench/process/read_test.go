package process

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	"pgregory.net/rapid"

	"github.com/penstock/penstock/internal/testutil/must"
)

func rest(l *lines) []string {
	var all []string
	for {
		line, err := l.next(context.Background())
		if err == io.EOF {
			return all
		}
		all = append(all, line)
	}
}

func TestLinesComeOutAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab\n]{0,60}`).Draw(t, "text")
		l := newLines()
		for left := text; left != ""; {
			n := rapid.IntRange(1, len(left)).Draw(t, "piece")
			if m, err := io.WriteString(l, left[:n]); m != n || err != nil {
				t.Fatal(m, err)
			}
			left = left[n:]
		}
		l.close()
		want := strings.Split(text, "\n")
		if want[len(want)-1] == "" {
			want = want[:len(want)-1]
		}
		if got := rest(l); strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%q became %q", text, got)
		}
	})
}

func TestOnlyWhatSocketsAreMadeOfCounts(t *testing.T) {
	slabs := []*procfs.Slab{
		{Name: "tw_sock_TCP", ObjActive: 347, ObjSize: 256},
		{Name: "TCPv6", ObjActive: 91, ObjSize: 2496},
		{Name: "kmalloc-64", ObjActive: 2547, ObjSize: 64},
		{Name: "TCP", ObjActive: 10, ObjSize: 2368},
		{Name: "dentry", ObjActive: 178434, ObjSize: 192},
		{Name: "kmalloc-cg-64", ObjActive: 2, ObjSize: 64},
	}
	if got, err := socketBytes(slabs, 3); got != 10*2368+3*192+2*64 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	must.Fail(socketBytes([]*procfs.Slab{{Name: "filp", ObjActive: 1, ObjSize: 192}}, 0))(t, errNoCaches)
}

// A thousand sockets take at least the minimum size of a thousand of the kernel's TCP sockets.
// They take three times as much if no other process closes any.
func TestSocketSlabGrowsWithSockets(t *testing.T) {
	before, err := SocketSlab()
	if os.Geteuid() != 0 {
		must.Is(t, err, fs.ErrPermission)
		t.Skip("/proc/slabinfo is for root")
	}
	if errors.Is(err, errNoCaches) || errors.Is(err, fs.ErrNotExist) {
		t.Skip(err)
	}
	must.Do(t, err)
	grown := grownBy1000(t, before)
	for tries := 1; tries < 20 && grown < 1000*1000; tries++ { // sockets of other processes come and go
		before = must.Get(SocketSlab())(t)
		grown = grownBy1000(t, before)
	}
	if grown < 1000*1000 {
		t.Errorf("1,000 sockets, the last of twenty times: %d bytes more", grown)
	}
}

// grownBy1000 returns how many bytes more than before there are with 1,000 sockets, which are closed afterwards.
func grownBy1000(t *testing.T, before int64) int64 {
	for range 1000 {
		l := must.Get(net.Listen("tcp4", "127.0.0.1:0"))(t)
		defer l.Close()
	}
	after := must.Get(SocketSlab())(t)
	return after - before
}
