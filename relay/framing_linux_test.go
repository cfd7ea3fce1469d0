package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// A kind is a kind of connection: where one Write of the far end is one Read of the near one, or a stream.
type kind struct {
	messages bool
	pair     func(t *testing.T) (far, near net.Conn)
}

var kinds = map[string]kind{
	"udp":        {true, udpPair},
	"unixgram":   {true, func(t *testing.T) (far, near net.Conn) { return unixPair(t, "unixgram") }},
	"unixpacket": {true, packetPair},
	"net.Pipe":   {false, func(*testing.T) (far, near net.Conn) { return net.Pipe() }},
	"framed": {true, func(t *testing.T) (far, near net.Conn) {
		far, near = tcp(t)
		return &framed{far}, &framed{near}
	}},
	"tls":  {false, func(t *testing.T) (far, near net.Conn) { return tlsOverTCP(t) }},
	"tcp":  {false, func(t *testing.T) (far, near net.Conn) { return tcp(t) }},
	"unix": {false, func(t *testing.T) (far, near net.Conn) { return unixStream(t) }},
	"file of a datagram socket": {true, func(t *testing.T) (far, near net.Conn) {
		far, c := udpPair(t)
		f := must.Get(c.(*net.UDPConn).File())(t)
		t.Cleanup(func() { f.Close() })
		return far, relay.Stream(f)
	}},
}

// wrappers are ways to pass a connection on.
var wrappers = map[string]func(net.Conn) net.Conn{
	"":         func(c net.Conn) net.Conn { return c },
	"embedded": func(c net.Conn) net.Conn { return struct{ net.Conn }{c} },
	"metered":  func(c net.Conn) net.Conn { return relay.Metered(c, new(relay.Meter)) },
	"prefixed": func(c net.Conn) net.Conn { return relay.Prefixed(c, nil) },
	"wrapped":  func(c net.Conn) net.Conn { return relay.Wrap(struct{ net.Conn }{c}) },
}

func udpPair(t *testing.T) (far, near net.Conn) {
	t.Helper()
	l := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	free := l.LocalAddr().(*net.UDPAddr)
	near = must.Get(net.DialUDP("udp4", nil, free))(t)
	l.Close()
	far = must.Get(net.DialUDP("udp4", free, near.LocalAddr().(*net.UDPAddr)))(t)
	t.Cleanup(func() { far.Close(); near.Close() })
	return far, near
}

func unixPair(t *testing.T, network string) (far, near net.Conn) {
	t.Helper()
	dir := t.TempDir()
	a := &net.UnixAddr{Name: filepath.Join(dir, "a"), Net: network}
	receiver := must.Get(net.ListenUnixgram(network, a))(t)
	far = must.Get(net.DialUnix(network, nil, a))(t)
	t.Cleanup(func() { far.Close(); receiver.Close() })
	return far, receiver
}

func packetPair(t *testing.T) (far, near net.Conn) {
	t.Helper()
	l := must.Get(net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(sockets.Dir(t), "p"), Net: "unixpacket"}))(t)
	defer l.Close()
	far = must.Get(net.Dial("unixpacket", l.Addr().String()))(t)
	near = must.Get(l.Accept())(t)
	t.Cleanup(func() { far.Close(); near.Close() })
	return far, near
}

// framed is a connection of messages over a stream, as DNS over TCP is.
type framed struct{ net.Conn }

func (f *framed) Write(p []byte) (int, error) {
	_, err := f.Conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(p))), p...))
	return len(p), err
}

func (f *framed) Read(p []byte) (int, error) {
	var head [2]byte
	if _, err := io.ReadFull(f.Conn, head[:]); err != nil {
		return 0, err
	}
	n := int(binary.BigEndian.Uint16(head[:]))
	if n > len(p) {
		return 0, io.ErrShortBuffer
	}
	return io.ReadFull(f.Conn, p[:n])
}

// A messageSink is a connection that keeps what is written to it, until a write ends with "END".
type messageSink struct {
	net.Conn // nil

	mu     sync.Mutex
	writes [][]byte
	once   sync.Once
	over   chan struct{}
}

var errRecorded = errors.New("recorded")

func newMessageSink() *messageSink { return &messageSink{over: make(chan struct{})} }

func (r *messageSink) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = append(r.writes, bytes.Clone(p))
	if bytes.HasSuffix(p, []byte("END")) {
		_ = r.Close()
		return len(p), errRecorded
	}
	return len(p), nil
}

func (r *messageSink) Read([]byte) (int, error)         { <-r.over; return 0, errRecorded }
func (r *messageSink) Close() error                     { r.once.Do(func() { close(r.over) }); return nil }
func (r *messageSink) SetDeadline(time.Time) error      { return r.Close() }
func (r *messageSink) SetReadDeadline(time.Time) error  { return nil }
func (r *messageSink) SetWriteDeadline(time.Time) error { return nil }
func (r *messageSink) LocalAddr() net.Addr              { return nil }
func (r *messageSink) RemoteAddr() net.Addr             { return nil }

// TestMessages: copies and sessions from each kind of connection, and from wrappers of it, deliver what io.Copy does,
// message by message where it has messages.
func TestMessages(t *testing.T) {
	t.Parallel()

	sizes := []int{1400, 9000, 1200, 1, 30_000, 700}
	ways := map[string]func(r *relay.Relay, dst *messageSink, src net.Conn) error{
		"io.Copy": func(_ *relay.Relay, dst *messageSink, src net.Conn) error {
			_, err := io.Copy(struct{ io.Writer }{dst}, struct{ io.Reader }{src})
			return err
		},
		"Copy": func(r *relay.Relay, dst *messageSink, src net.Conn) error {
			_, err := r.Copy(dst, src)
			return err
		},
		"CopyContext": func(r *relay.Relay, dst *messageSink, src net.Conn) error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			_, err := r.CopyContext(ctx, dst, src)
			return err
		},
		"Move": func(r *relay.Relay, dst *messageSink, src net.Conn) error {
			_, err := r.Move(struct{ io.Writer }{dst}, src)
			return err
		},
		"io.Copy from Wrap": func(_ *relay.Relay, dst *messageSink, src net.Conn) error {
			_, err := io.Copy(dst, relay.Wrap(src))
			return err
		},
		"Join": func(r *relay.Relay, dst *messageSink, src net.Conn) error {
			_, err := r.Join(context.Background(), src, dst)
			return err
		},
		"a session with a rate": func(r *relay.Relay, dst *messageSink, src net.Conn) error {
			s := r.NewSession(src, dst)
			s.Limit(&relay.Limits{PerConnection: relay.Rates{AToB: 4 << 20, Burst: 1000}})
			_, err := s.Run(context.Background())
			return err
		},
	}
	r := newRelay(t, nil)
	for name, k := range kinds {
		for of, wrap := range wrappers {
			for way, move := range ways {
				t.Run(fmt.Sprintf("%s/%s/%s", name, of, way), func(t *testing.T) {
					t.Parallel()
					far, near := k.pair(t)
					dst, src := newMessageSink(), wrap(near)
					done := make(chan error, 1)
					go func() { done <- move(r, dst, src) }()
					var want [][]byte
					for i, size := range sizes {
						message := content(uint64(i), size)
						want = append(want, message)
						write(t, far, message)
					}
					write(t, far, []byte("END"))
					must.Is(t, condition.Receive(t, "the last message", done), errRecorded)
					got := dst.writes
					want = append(want, []byte("END"))
					if !k.messages {
						got, want = [][]byte{bytes.Join(got, nil)}, [][]byte{bytes.Join(want, nil)}
					}
					if !slices.EqualFunc(got, want, bytes.Equal) {
						t.Errorf("got %v bytes, want %v", lengths(got), lengths(want))
					}
				})
			}
		}
	}
}

func lengths(all [][]byte) (n []int) {
	for _, b := range all {
		n = append(n, len(b))
	}
	return n
}

// TestJoinDatagrams: two sockets of datagrams, joined, pass the largest there is, and empty ones do no harm.
func TestJoinDatagrams(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	A, a := udpPair(t)
	B, b := udpPair(t)
	s := r.NewSession(a, b)
	ends := start(t, s)
	for range 120 { // more than a Read may return nothing
		_, _ = A.Write(nil)
	}
	for _, size := range []int{1, 40_000, 65_507, 1400} {
		message := content(1, size)
		for _, way := range [][2]net.Conn{{A, B}, {B, A}} {
			write(t, way[0], message)
			got := make([]byte, 1<<17)
			_ = way[1].SetReadDeadline(time.Now().Add(condition.Patience))
			n, err := way[1].Read(got)
			if err != nil || !bytes.Equal(got[:n], message) {
				t.Fatalf("%d of %d bytes, %v", n, size, err)
			}
		}
	}
	s.Cut(errRecorded)
	if o := end(t, ends); !errors.Is(o.err, errRecorded) {
		t.Error(o.err)
	}
}

// lasting hides that an earlier datagram was refused.
type lasting struct{ *net.UDPConn }

func (c lasting) Read(b []byte) (int, error) {
	n, err := c.UDPConn.Read(b)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return 0, nil
	}
	return n, err
}

func (c lasting) Write(b []byte) (int, error) {
	n, err := c.UDPConn.Write(b)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return len(b), nil
	}
	return n, err
}

// TestRefusedDatagram: a datagram that meets a closed port ends the session, unless a wrapper hides the error.
func TestRefusedDatagram(t *testing.T) {
	t.Parallel()

	for _, hidden := range []bool{false, true} {
		A, a := udpPair(t)
		B, b := udpPair(t)
		at := B.LocalAddr().(*net.UDPAddr)
		must.Do(t, B.Close())
		if hidden {
			b = lasting{b.(*net.UDPConn)}
		}
		s := newRelay(t, nil).NewSession(a, b)
		ends := start(t, s)
		write(t, A, "refused")
		if !hidden {
			if o := end(t, ends); o.result.Reason != relay.ReasonError || !errors.Is(o.err, syscall.ECONNREFUSED) || o.result.Culprit != relay.SideB {
				t.Errorf("%+v, %v", o.result, o.err)
			}
			continue
		}
		back := must.Get(net.ListenUDP("udp4", at))(t)
		defer back.Close()
		condition.Await(t, "a datagram", func() bool {
			write(t, A, "there")
			_ = back.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			_, err := back.Read(make([]byte, 10))
			return err == nil
		})
		s.Cut(errRecorded)
		if o := end(t, ends); !errors.Is(o.err, errRecorded) {
			t.Error(o.err)
		}
	}
}

// TestLongMessage: a message that no buffer holds is an error, and no part of it comes, also where the destination has a ReadFrom. Shorter
// ones come whole.
func TestLongMessage(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	for name, pair := range map[string]func(*testing.T) (far, near net.Conn){"unixgram": kinds["unixgram"].pair, "unixpacket": packetPair} {
		sink := newMessageSink()
		for _, dst := range []io.Writer{sink, io.Discard, new(bytes.Buffer), bufio.NewWriter(new(bytes.Buffer))} {
			far, near := pair(t)
			go func() {
				_, _ = far.Write(content(1, 64<<10))
				_, _ = far.Write(content(2, 100_000))
			}()
			if n, err := r.Copy(dst, near); n != 64<<10 || !errors.Is(err, io.ErrShortBuffer) {
				t.Errorf("%s to %T: %d bytes, %v", name, dst, n, err)
			}
		}
		if !slices.Equal(lengths(sink.writes), []int{64 << 10}) {
			t.Errorf("%s: messages %v", name, lengths(sink.writes))
		}
	}
}

// TestWritesOfMessages: an end that may write by messages gets no longer writes than from io.Copy.
func TestWritesOfMessages(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	const most = 32 << 10
	for name, k := range map[string]kind{"tcp": kinds["tcp"], "unix": kinds["unix"], "tls": kinds["tls"]} {
		far, near := k.pair(t)
		dst := newMessageSink()
		go func() {
			_, _ = far.Write(content(1, 1<<20))
			_, _ = far.Write([]byte("END"))
		}()
		if _, err := r.Copy(dst, near); !errors.Is(err, errRecorded) {
			t.Fatal(name, err)
		}
		if longest := slices.Max(lengths(dst.writes)); longest > most || len(bytes.Join(dst.writes, nil)) != 1<<20+3 {
			t.Errorf("%s: the longest write has %d bytes, want %d at most", name, longest, most)
		}
	}
	// A datagram socket refuses more than 65,507 bytes.
	far, near := tcp(t)
	_, udp := udpPair(t)
	go func() {
		_, _ = far.Write(content(1, 1<<20))
		_ = far.CloseWrite()
	}()
	if n, err := r.Copy(udp, near); n != 1<<20 || err != nil {
		t.Error(n, err)
	}
}

// TestPacketEnd: the end of a connection of packets is an end.
func TestPacketEnd(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	far, near := packetPair(t)
	_, _ = far.Write([]byte("all"))
	far.Close()
	var b bytes.Buffer
	if n, err := r.Copy(struct{ io.Writer }{&b}, near); n != 3 || err != nil {
		t.Error(n, err)
	}
}

// TestMessagesInterrupted: a read of messages that has waited ends with its own error.
func TestMessagesInterrupted(t *testing.T) {
	t.Parallel()

	const soon = 20 * time.Millisecond // for the Read to wait
	r := newRelay(t, nil)
	ways := map[string]func(ctx context.Context, dst afterWrite, src net.Conn) error{
		"Copy": func(_ context.Context, dst afterWrite, src net.Conn) error { _, err := r.Copy(dst, src); return err },
		"CopyN": func(_ context.Context, dst afterWrite, src net.Conn) error {
			_, err := r.CopyN(dst, src, 1<<20)
			return err
		},
		"CopyContext": func(ctx context.Context, dst afterWrite, src net.Conn) error {
			_, err := r.CopyContext(ctx, dst, src)
			return err
		},
		"Move": func(_ context.Context, dst afterWrite, src net.Conn) error { _, err := r.Move(dst, src); return err },
		"Join": func(_ context.Context, dst afterWrite, src net.Conn) error {
			_, err := r.Join(context.Background(), src, dst)
			return err
		},
		"io.Copy from Wrap": func(_ context.Context, dst afterWrite, src net.Conn) error {
			_, err := io.Copy(dst, relay.Wrap(src))
			return err
		},
	}
	for _, kind := range []string{"udp", "unixgram", "unixpacket"} {
		for way, move := range ways {
			for by, want := range map[string]error{"a deadline": os.ErrDeadlineExceeded, "Close": net.ErrClosed, "ctx": errRecorded} {
				if (by == "ctx") != (way == "CopyContext") {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", kind, way, by), func(t *testing.T) {
					t.Parallel()
					far, near := kinds[kind].pair(t)
					ctx, cancel := context.WithCancelCause(t.Context())
					dst := afterWrite{newMessageSink(), func() {
						switch by {
						case "a deadline":
							_ = near.SetReadDeadline(time.Now().Add(soon))
						case "Close":
							time.AfterFunc(soon, func() { _ = near.Close() })
						default:
							time.AfterFunc(soon, func() { cancel(errRecorded) })
						}
					}}
					write(t, far, []byte("ten bytes."))
					must.Is(t, move(ctx, dst, near), want)
				})
			}
		}
	}
}

// An afterWrite calls a function at each Write.
type afterWrite struct {
	*messageSink
	then func()
}

func (a afterWrite) Write(p []byte) (int, error) { a.then(); return len(p), nil }
