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

	"pgregory.net/rapid"

	"github.com/penstock/penstock/internal/testutil/must"
)

// rest reads the remaining lines.
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

const slabinfo = `slabinfo - version: 2.1
# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>
tw_sock_TCP          347    720    256   16    1 : tunables    0    0    0
TCP                   10    104   2368   13    8 : tunables    0    0    0
TCPv6                 91    143   2496   13    8 : tunables    0    0    0
ext4_inode_cache  136809 137102   1128   14    4 : tunables    0    0    0
dentry            178434 189966    192   21    1 : tunables    0    0    0
kmalloc-cg-64          2      2     64   64    1 : tunables    0    0    0
kmalloc-64          2547   3392     64   64    1 : tunables    0    0    0
`

func TestOnlyWhatSocketsAreMadeOfCounts(t *testing.T) {
	if got, err := socketBytes(slabinfo, 3); got != 10*2368+3*192+2*64 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	must.Fail(socketBytes("filp 1 1 192", 0))(t, errNoCaches)
	if _, err := socketBytes("TCP many 1 192", 0); err == nil {
		t.Error("'many' is read as a number")
	}
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
