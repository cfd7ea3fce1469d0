package vecio_test

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/paired"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/vecio"
)

// swallow reads everything from c, without copying it, until it ends.
func swallow(b *testing.B, c syscall.Conn) {
	raw := must.Get(c.SyscallConn())(b)
	fd, done := sockets.FD(b, c), make(chan struct{})
	buf := make([]byte, 4<<20)
	go func() {
		defer close(done)
		_ = raw.Read(func(uintptr) bool {
			for {
				n, err := sys.Recv(fd, buf, sys.MSG_DONTWAIT|sys.MSG_TRUNC)
				if err != nil || n == 0 {
					return err != syscall.EAGAIN
				}
			}
		})
	}()
	b.Cleanup(func() { <-done })
}

// batch is about how many bytes one Flush has.
const batch = 64 << 10

// BenchmarkCopyOrRefer finds out below which size a piece should be copied: rounds of
// batches of 64 KiB that are copied alternate with rounds of such that go by reference,
// over one TCP connection of loopback to a peer that drops them. The time is the CPU
// time of the writing thread alone.
func BenchmarkCopyOrRefer(b *testing.B) {
	for _, size := range []int{64, 128, 256, 384, 512, 768, 1024, 1300, 2048, 3072, 4096, 8192, 16384} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			client, server := sockets.TCPPair(b)
			swallow(b, server)
			copying := newWriter(b, client, &vecio.Config{CopyBelow: batch})
			referring := newWriter(b, client, &vecio.Config{CopyBelow: -1})
			// More payload than caches hold near: a server's is seldom just made.
			payload := make([]byte, 8<<20)
			at := 0
			round := func(w *vecio.Writer) time.Duration {
				begin := used(b)
				for range 8 {
					for n := 0; n < batch; n += size {
						if at+size > len(payload) {
							at = 0
						}
						if err := w.Append(payload[at : at+size]); err != nil {
							b.Fatal(err)
						}
						at += size
					}
					must.Do(b, w.Flush())
				}
				return used(b) - begin
			}
			paired.Run(b, 0, paired.Contestant{Name: "copying", Run: func(int) time.Duration { return round(copying) }},
				paired.Contestant{Name: "referring", Run: func(int) time.Duration { return round(referring) }})
			must.Do(b, client.CloseWrite())
		})
	}
}

// used is the CPU time of our thread, user and system.
func used(b *testing.B) time.Duration {
	return must.Get(sys.ThreadCPUTime())(b)
}

// BenchmarkZeroCopyOverLoopback measures the cost of MSG_ZEROCOPY where it cannot win: the kernel pins the pages, still copies
// on the way to the receiver, and notifies. Both ways take turns of 16 pieces.
func BenchmarkZeroCopyOverLoopback(b *testing.B) {
	for _, size := range []int{4 << 10, 10 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			client, server := sockets.TCPPair(b)
			go func() {
				_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{server}, make([]byte, 256<<10))
			}()
			fd, piece := sockets.FD(b, client), make([]byte, size)
			if err := sys.SetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_ZEROCOPY, 1); err != nil {
				b.Skip("SO_ZEROCOPY:", err)
			}
			paired.Run(b, 0, paired.Contestant{Name: "zerocopy", Run: func(int) time.Duration { return bulk(b, fd, piece, sys.MSG_ZEROCOPY) }},
				paired.Contestant{Name: "plain", Run: func(int) time.Duration { return bulk(b, fd, piece, 0) }})
		})
	}
}

// bulk is one turn, until the kernel has everything and, with MSG_ZEROCOPY, has reported all calls.
func bulk(b *testing.B, fd int, piece []byte, flags int) time.Duration {
	start, calls := time.Now(), uint32(0)
	again := func(err error) {
		if err != nil && err != syscall.EAGAIN && err != syscall.ENOBUFS {
			b.Fatal(err)
		}
		time.Sleep(10 * time.Microsecond)
	}
	for range 16 {
		for rest := piece; len(rest) > 0; {
			n, err := sys.Send(fd, rest, flags|sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
			if rest = rest[max(n, 0):]; n > 0 {
				calls++
				continue
			}
			again(err)
		}
	}
	for flags != 0 && calls > 0 {
		n, err := sys.RecvZerocopyNotice(fd)
		if err != nil {
			again(err)
			continue
		}
		calls -= n.Hi - n.Lo + 1
	}
	return time.Since(start)
}

const (
	responses   = 1_000_000
	connections = 64
	together    = 8    // responses of a connection that are written with one call
	largest     = 4096 // bytes of a payload; the smallest has an eighth
)

var (
	head = make([]byte, 120)
	tail = []byte("\r\n")
)

// payloadSize is that of the i-th response: anything, always the same.
func payloadSize(i int) int { return largest/8 + int(uint32(i)*2654435761>>16)%(largest*7/8) }

// A server answers with one way of having memory. respond is given a response of a
// connection, and flush writes the pending bytes.
type server interface {
	respond(connection, size int)
	flush(connection int)
}

// BenchmarkResponses: a million responses of header, payload and trailer, to 64
// connections in turn, eight to a write, four ways. They go to the null device, so that
// the cost of memory remains. The program has 16 MiB of other live objects.
//
// slack is 1 − HeapAlloc/HeapInuse: the part of the spans in use that belongs to no
// object. It is the mean of fifty samples, and one after a collection in the end. heap is
// HeapAlloc in these samples, and live is HeapAlloc after that collection.
func BenchmarkResponses(b *testing.B) {
	for _, way := range []struct {
		name string
		make func(b *testing.B, null *os.File) server
	}{
		{"allocate", newAllocating},
		{"pool whole", newWhole},
		{"pool headers", newHeaders},
		{"pool headers, arena", newArena},
	} {
		b.Run(way.name, func(b *testing.B) {
			null := must.Get(os.OpenFile(os.DevNull, os.O_WRONLY, 0))(b)
			defer null.Close()
			s := way.make(b, null)
			others := make([]*[256]byte, 16<<20/256)
			for i := range others {
				others[i] = new([256]byte)
			}
			var before, after, now runtime.MemStats
			var inUse, slack, samples float64
			for b.Loop() {
				runtime.GC()
				runtime.ReadMemStats(&before)
				for i := range responses {
					s.respond(i%connections, payloadSize(i))
					if i/connections%together == together-1 {
						s.flush(i % connections)
					}
					if i%(responses/50) == responses/100 {
						runtime.ReadMemStats(&now)
						inUse += float64(now.HeapAlloc)
						slack += 1 - float64(now.HeapAlloc)/float64(now.HeapInuse)
						samples++
					}
				}
				runtime.ReadMemStats(&after)
			}
			runtime.GC()
			runtime.ReadMemStats(&now)
			runtime.KeepAlive(others)
			for c := range connections {
				s.flush(c)
			}
			b.ReportMetric(float64(now.HeapAlloc)/(1<<20), "live-MiB")
			b.ReportMetric(100-100*float64(now.HeapAlloc)/float64(now.HeapInuse), "slack-after-%")
			b.ReportMetric(float64(after.NumGC-before.NumGC), "collections")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/(1<<30), "allocated-GiB")
			b.ReportMetric(inUse/samples/(1<<20), "heap-MiB")
			b.ReportMetric(slack/samples*100, "slack-%")
		})
	}
}

// An allocating server makes everything anew: payloads, and the array of headers for
// each write.
type allocating struct {
	fd    int
	parts [connections][][]byte
}

func newAllocating(b *testing.B, null *os.File) server {
	return &allocating{fd: sockets.FD(b, null)}
}

func (s *allocating) respond(c, size int) {
	s.parts[c] = append(s.parts[c], head, make([]byte, size), tail)
}

func (s *allocating) flush(c int) {
	writev(s.fd, s.parts[c])
	s.parts[c] = nil
}

func writev(fd int, parts [][]byte) {
	if _, err := sys.Writev(fd, parts); err != nil {
		panic(err)
	}
}

// A whole is an array of headers pooled with the payloads that it points at, each as
// long as the longest.
type whole struct {
	parts [][]byte
	n     int
}

type poolingWhole struct {
	fd   int
	pool sync.Pool
	open [connections]*whole
}

func newWhole(b *testing.B, null *os.File) server { return &poolingWhole{fd: sockets.FD(b, null)} }

func (s *poolingWhole) respond(c, size int) {
	w := s.open[c]
	if w == nil {
		if w, _ = s.pool.Get().(*whole); w == nil {
			w = new(whole)
		}
		s.open[c] = w
	}
	if w.n == len(w.parts) {
		w.parts = append(w.parts, head, make([]byte, largest), tail)
	}
	w.parts[w.n+1] = w.parts[w.n+1][:size]
	w.n += 3
}

func (s *poolingWhole) flush(c int) {
	if w := s.open[c]; w != nil {
		writev(s.fd, w.parts[:w.n])
		w.n = 0
		s.pool.Put(w)
		s.open[c] = nil
	}
}

// A gathering server has a Writer for each connection, which pools headers, and payloads
// by payload.
type gathering struct {
	b       *testing.B
	writers [connections]*vecio.Writer
	payload func(size int) []byte
	release vecio.Releaser
}

func newGathering(b *testing.B, null *os.File) *gathering {
	s := &gathering{b: b}
	for c := range s.writers {
		s.writers[c] = newWriter(b, null, &vecio.Config{CopyBelow: -1})
	}
	return s
}

func (s *gathering) respond(c, size int) {
	w, p := s.writers[c], s.payload(size)
	if w.Append(head) != nil || w.Own(p, s.release) != nil || w.Append(tail) != nil {
		s.b.Fatal("a piece was refused")
	}
}

func (s *gathering) flush(c int) {
	if err := s.writers[c].Flush(); err != nil {
		s.b.Fatal(err)
	}
}

func newHeaders(b *testing.B, null *os.File) server {
	s := newGathering(b, null)
	s.payload = func(size int) []byte { return make([]byte, size) }
	s.release = vecio.ReleaseFunc(func([]byte) {})
	return s
}

func newArena(b *testing.B, null *os.File) server {
	a := must.Get(arena.New(&arena.Config{Size: 16 << 20, Locals: 1, Pages: arena.PagesPlain}))(b)
	b.Cleanup(func() { must.Do(b, a.Close()) })
	s, l := newGathering(b, null), a.Local(0)
	s.payload = func(size int) []byte {
		h, err := l.Get(size, arena.Other)
		if err != nil {
			b.Fatal(err)
		}
		p, err := l.Bytes(h)
		if err != nil {
			b.Fatal(err)
		}
		return p[:size]
	}
	s.release = l
	return s
}

// TestArena: pieces from an arena go back to it, wherever they are released.
func TestArena(t *testing.T) {
	a := must.Get(arena.New(&arena.Config{Size: 1 << 20, Locals: 1, Pages: arena.PagesPlain}))(t)
	client, server := sockets.TCPPair(t)
	w, l := newWriter(t, client, nil), a.Local(0)
	get := func(text string) []byte {
		h := must.Get(l.Get(3000, arena.Other))(t)
		p := must.Get(l.Bytes(h))(t)
		return p[:copy(p, text)]
	}
	must.Do(t, w.Own(get("one"), l), w.Own(get("two, "+string(make([]byte, 2000))), l), w.Flush())
	if got := received(t, server, 2008); string(got[:8]) != "onetwo, " {
		t.Errorf("the peer got %q", got[:8])
	}
	must.Do(t, w.Own(get("never written"), l), w.Reset(client))
	must.Do(t, a.Close()) // which fails if a slot is out
}
