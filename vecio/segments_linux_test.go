package vecio_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/vecio"
)

// A network makes connections with segments of about 1,440 bytes.
type network struct {
	name string
	pair func(t *testing.T) (client, server *net.TCPConn)
}

var networks = []network{
	{"loopback with TCP_MAXSEG", maxsegPair},
	{"a namespace with an MTU of 1500", namespacePair},
}

// maxsegPair needs no rights: both ends request small segments.
func maxsegPair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	client, server, err := dialed(func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = sys.SetsockoptInt(int(fd), sys.IPPROTO_TCP, sys.TCP_MAXSEG, 1448)
		}), err)
	})
	return opened(t, client, server, err)
}

// namespacePair has a loopback device of its own, with the MTU of an Ethernet.
func namespacePair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err = sys.Unshare(sys.CLONE_NEWNET); err != nil {
			return
		}
		if err = errors.Join(sys.InterfaceUp("lo"), sys.SetInterfaceMTU("lo", 1500)); err == nil {
			client, server, err = dialed(nil)
		}
	}()
	<-done
	if err == syscall.EPERM {
		t.Skip("needs CAP_SYS_ADMIN, for a network namespace of its own: unshare:", err)
	}
	return opened(t, client, server, err)
}

func dialed(control func(network, address string, c syscall.RawConn) error) (client, server *net.TCPConn, err error) {
	lc := net.ListenConfig{Control: control}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	d := net.Dialer{Control: control}
	d.SetMultipathTCP(false)
	c, err := d.Dial("tcp4", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	s, err := l.Accept()
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return c.(*net.TCPConn), s.(*net.TCPConn), nil
}

func opened(t *testing.T, client, server *net.TCPConn, err error) (_, _ *net.TCPConn) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	if n := segmentsOf(t, client).Snd_mss; n < 1000 || n > 1460 {
		t.Fatalf("segments of %d bytes", n)
	}
	return client, server
}

func segmentsOf(t testing.TB, c *net.TCPConn) (info sys.TCPInfo) {
	t.Helper()
	if err := sys.GetTCPInfo(sockets.FD(t, c), &info); err != nil {
		t.Fatal(err)
	}
	return info
}

// segments has f send total bytes to the server, which reads them all. It returns the
// number of segments that they took, without retransmissions.
func segments(t *testing.T, client, server *net.TCPConn, total int, f func()) int {
	t.Helper()
	before := segmentsOf(t, client)
	read := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.Discard, server, int64(total))
		read <- err
	}()
	f()
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	after := segmentsOf(t, client)
	return int(after.Data_segs_out-before.Data_segs_out) - int(after.Total_retrans-before.Total_retrans)
}

// fewest is the least number of segments that so many bytes need.
func fewest(t *testing.T, c *net.TCPConn, total int) int {
	n := int(segmentsOf(t, c).Snd_mss)
	return (total + n - 1) / n
}

// promptly repeats f, which has to be over before the timer of a cork could have
// had a part in it, and reports that; a busy machine may need several attempts.
func promptly(t *testing.T, f func() bool) {
	t.Helper()
	for range 20 {
		if f() {
			return
		}
	}
	t.Fatal("this machine holds tests up too often to count segments: each attempt took as long as the cork's timer")
}

// quick reports whether f takes less than the timer's 200 ms (net/ipv4/tcp_output.c, TCP_RTO_MIN).
func quick(f func()) bool {
	start := time.Now()
	f()
	return time.Since(start) < 150*time.Millisecond
}

// message is a unit of header, payload and trailer, in three pieces.
var message = [][]byte{random(180), random(5000), random(70)}

func lengths(pieces [][]byte) (total int) {
	for _, p := range pieces {
		total += len(p)
	}
	return total
}

// unit appends all pieces and ends the unit.
func unit(t testing.TB, w *vecio.Writer, pieces [][]byte) {
	t.Helper()
	for _, p := range pieces {
		must(t, w.Append(p))
	}
	must(t, w.End())
}

// TestPlainWritesTakeMoreSegments: the count of segments distinguishes plain writes from
// gathered ones.
func TestPlainWritesTakeMoreSegments(t *testing.T) {
	for _, net := range networks {
		t.Run(net.name, func(t *testing.T) {
			client, server := net.pair(t)
			total := lengths(message)
			got := segments(t, client, server, total, func() {
				for _, p := range message {
					if _, err := client.Write(p); err != nil {
						t.Fatal(err)
					}
				}
			})
			if least := fewest(t, client, total); got <= least {
				t.Errorf("%d segments by three writes, expected more than %d", got, least)
			}
		})
	}
}

// TestFewestSegments: a message of header, payload and trailer, and with Batch several
// of them, take no more segments than their bytes need.
func TestFewestSegments(t *testing.T) {
	for _, net := range networks {
		for _, policy := range []vecio.Policy{vecio.Latency, vecio.Batch, vecio.Adaptive} {
			t.Run(net.name+"/"+policy.String(), func(t *testing.T) {
				client, server := net.pair(t)
				cfg := &vecio.Config{Policy: policy, Bound: time.Hour}
				for name, w := range map[string]*vecio.Writer{
					"conn": newWriter(t, client, cfg), "socket": newSocket(t, client, cfg),
				} {
					countMessages(t, name, client, server, w, policy)
				}
			})
		}
	}
}

func countMessages(t *testing.T, name string, client, server *net.TCPConn, w *vecio.Writer, policy vecio.Policy) {
	t.Helper()
	units := 1
	if policy == vecio.Batch {
		units = 3
	}
	total := units * lengths(message)
	promptly(t, func() bool {
		var got int
		in := quick(func() {
			got = segments(t, client, server, total, func() {
				for range units {
					unit(t, w, message)
				}
				must(t, w.Flush())
			})
		})
		if least := fewest(t, client, total); in && got != least {
			t.Errorf("%s: %d segments, needed are %d", name, got, least)
		}
		return in
	})
}

// TestPartsLeaveInFullSegments: bytes may leave before a unit is complete, because they
// fill a segment or do not fit below the high mark. They leave in full segments only.
func TestPartsLeaveInFullSegments(t *testing.T) {
	for name, cfg := range map[string]*vecio.Config{
		"adaptive":              {Policy: vecio.Adaptive, Bound: time.Hour},
		"batch, high mark":      {Policy: vecio.Batch, High: 4000},
		"latency, high mark":    {Policy: vecio.Latency, High: 4000},
		"adaptive, by the byte": {Policy: vecio.Adaptive, Bound: time.Hour, CopyBelow: -1},
	} {
		for _, net := range networks {
			t.Run(name+"/"+net.name, func(t *testing.T) {
				client, server := net.pair(t)
				w := newWriter(t, client, cfg)
				promptly(t, func() bool { return partsInFullSegments(t, client, server, w) })
			})
		}
	}
}

func partsInFullSegments(t *testing.T, client, server *net.TCPConn, w *vecio.Writer) bool {
	t.Helper()
	const parts, size = 30, 997
	piece, before := random(size), w.Stats()
	var got int
	in := quick(func() {
		got = segments(t, client, server, parts*size, func() {
			for range parts {
				must(t, w.Append(piece))
			}
			wantCork(t, client, true)
			must(t, w.End(), w.Flush())
			wantCork(t, client, false)
		})
	})
	if s := w.Stats(); s.Early == before.Early || s.Corked != before.Corked+1 {
		t.Errorf("nothing left early: %+v", s)
	}
	if least := fewest(t, client, parts*size); in && got != least {
		t.Errorf("%d segments, needed are %d", got, least)
	}
	return in
}

// TestAFullSegmentDoesNotWait: with Adaptive the peer has all full segments of a unit
// that never ends.
func TestAFullSegmentDoesNotWait(t *testing.T) {
	client, server := maxsegPair(t)
	w := newWriter(t, client, &vecio.Config{Policy: vecio.Adaptive, Bound: time.Hour})
	sent := 0
	for _, p := range [][]byte{random(800), random(800), random(9000)} {
		must(t, w.Append(p))
		if sent += len(p); sent == 800 && w.Stats().Calls != 0 {
			t.Error("bytes that fill no segment have left")
		}
	}
	n := int(segmentsOf(t, client).Snd_mss)
	received(t, server, sent/n*n)
	if w.Pending() != 0 {
		t.Errorf("%d bytes are pending", w.Pending())
	}
	must(t, w.Flush())
	received(t, server, sent%n)
}

// TestManyCallsAreOneFlush: one that takes several calls makes no segment that is not
// full between them.
func TestManyCallsAreOneFlush(t *testing.T) {
	const pieces, size = 5000, 10
	piece := random(size)
	promptly(t, func() bool {
		client, server := maxsegPair(t)
		w := newWriter(t, client, &vecio.Config{CopyBelow: -1, High: 1 << 30})
		var got int
		in := quick(func() {
			got = segments(t, client, server, pieces*size, func() {
				for range pieces {
					must(t, w.Append(piece))
				}
				must(t, w.End())
			})
		})
		calls, least := int(w.Stats().Calls), fewest(t, client, pieces*size)
		if in && (calls < 5 || got != least) {
			t.Errorf("%d segments by %d calls, needed are %d", got, calls, least)
		}
		wantCork(t, client, false)
		return in
	})
}
