package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/vecio"
)

// TestLoad: many clients, each with messages of all sizes in one pipeline that is cut
// anywhere, and every byte that comes back is looked at. There are slots for a few of
// them, so that the others wait for theirs or read into the heap.
func TestLoad(t *testing.T) {
	const clients = 48
	// Made before anyone connects: it takes longer than the traffic, of all CPUs that the
	// loops have, and a socket that nobody reads from drops packets.
	all := make([][][]byte, clients)
	for i := range all {
		all[i] = payloads(uint64(i))
	}
	for _, policy := range policies {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			f := start(t, 64, policy)
			var running sync.WaitGroup
			for i := range clients {
				c := sockets.Dial(t, f.address)
				must.Do(t, c.SetDeadline(time.Time{})) // see sockets.Moving
				running.Go(func() {
					if err := f.load(t, c, all[i], uint64(i)); err != nil {
						t.Errorf("client %d: %v", i, err)
					}
				})
			}
			running.Wait()
		})
	}
}

// payloads are what client i sends: most are short, some long, none longer than allowed.
func payloads(i uint64) [][]byte {
	source := rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)})
	random := rand.New(source)
	var all [][]byte
	for range 60 {
		n := random.IntN(1 << random.IntN(16))
		if random.IntN(100) == 0 {
			n = longest - random.IntN(2)*random.IntN(longest)
		}
		p := make([]byte, n)
		_, _ = source.Read(p)
		all = append(all, p)
	}
	return all
}

// load is client i. Its error says on which side the bytes are that have not come.
func (f *fixture) load(t *testing.T, c *net.TCPConn, all [][]byte, i uint64) error {
	sent := make(chan error, 1)
	go func() { sent <- pour(c, all, i) }()
	from := bufio.NewReader(sockets.Moving{TCPConn: c})
	for n, p := range all {
		want := answered(p)
		got := make([]byte, len(want))
		if had, err := io.ReadFull(from, got); err != nil || !bytes.Equal(got, want) {
			sides := f.sides(t, c)
			c.Close() // so that the sender ends
			return errors.Join(fmt.Errorf("answer %d, %d of %d bytes: %v, % x..., want % x...\n%s", n, had, len(want), err, got[:4], want[:4], sides), <-sent)
		}
	}
	if n, err := io.Copy(io.Discard, from); n > 0 || err != nil {
		return fmt.Errorf("behind the last answer: %d bytes, %v", n, err)
	}
	return <-sent
}

// sides describes both sides of a client's connection.
func (f *fixture) sides(t *testing.T, client *net.TCPConn) string {
	said := "client: " + sockets.Account(client)
	port := client.LocalAddr().(*net.TCPAddr).Port
	f.each(t, func(c *conn) {
		if a, _ := syscall.Getpeername(c.fd); a == nil || a.(*syscall.SockaddrInet4).Port != port {
			return
		}
		due, is := c.out.Due()
		said += fmt.Sprintf("\nserver: %d bytes pending, %d slots held, room %v, ended %v, due %v (%v), armed %v, %+v",
			c.out.Pending(), c.held, c.room(), c.ended, due, is, c.due.Armed(), c.out.Stats())
	})
	return said
}

// pour sends all messages, in pieces that do not end where messages do, and the end.
func pour(c *net.TCPConn, all [][]byte, i uint64) error {
	var b []byte
	for _, p := range all {
		b = encode(b, p)
	}
	for random := rand.New(rand.NewPCG(i, 3)); len(b) > 0; {
		n := min(1+random.IntN(1<<random.IntN(18)), len(b))
		if _, err := c.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return c.CloseWrite()
}

// TestBounds: a client who sends on and on and reads nothing has to stop, with no more
// than the high mark pending and no more slots than it may hold; and has all of its
// answers, once it reads.
func TestBounds(t *testing.T) {
	for _, policy := range policies {
		for _, size := range []int{0, 1, short, 3 * slot} {
			if size < short && policy != vecio.Batch {
				continue // a million answers, and as many calls
			}
			t.Run(fmt.Sprint(policy, size), func(t *testing.T) {
				t.Parallel()
				bounds(t, policy, bytes.Repeat([]byte("x"), size))
			})
		}
	}
}

func bounds(t *testing.T, policy vecio.Policy, payload []byte) {
	f := start(t, 64, policy)
	c := sockets.Dial(t, f.address)
	message := encode(nil, payload)
	must.Do(t, c.SetWriteDeadline(time.Now().Add(500*time.Millisecond)))
	// More than the buffers of two sockets hold. To be too slow for it in this time is
	// to pass.
	n, err := c.Write(bytes.Repeat(message, 64<<20/len(message)))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes were taken: %v", n, err)
	}
	f.each(t, func(c *conn) {
		if s := c.out.Stats(); c.out.Pending() > high || c.held > holds || s.Refused > 0 {
			t.Errorf("%d bytes are pending, %d slots held, %d pieces refused", c.out.Pending(), c.held, s.Refused)
		}
	})
	want := answered(payload)
	many := bytes.Repeat(want, 1+(1<<16)/len(want))
	from := bufio.NewReaderSize(c, 1<<20)
	for left := n / len(message) * len(want); left > 0; left -= len(many) {
		expect(t, from, many[:min(left, len(many))])
	}
}

// TestHolds: a client who reads nothing, and whose messages come one by one, has a slot
// for each of them; and no more slots than it may hold.
func TestHolds(t *testing.T) {
	f := start(t, 64, vecio.Batch)
	c := sockets.Dial(t, f.address)
	payload := bytes.Repeat([]byte("z"), 2*short)
	message, want := encode(nil, payload), answered(payload)
	send(t, c, message)
	expect(t, c, want)
	f.each(t, func(c *conn) {
		if err := syscall.SetsockoptInt(c.fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 1); err != nil {
			t.Error(err)
		}
	})
	sent, held := 0, 0
	for held < holds {
		send(t, c, message)
		sent++
		for seen := 1; seen <= sent && held < holds; { // the loop has it
			f.each(t, func(c *conn) { seen, held = int(c.out.Stats().Units), c.held })
		}
	}
	send(t, c, bytes.Repeat(message, 100))
	f.each(t, func(c *conn) {
		c.Ready(0, loop.Readable)
		if c.held > holds {
			t.Errorf("%d slots are held", c.held)
		}
	})
	expect(t, c, bytes.Repeat(want, sent+100))
	t.Logf("%d messages before the sockets were full", sent)
}

// TestBegun: what there is of an answer arrives while the client keeps the rest of the
// message to itself, whatever the policy.
func TestBegun(t *testing.T) {
	for _, policy := range policies {
		for _, size := range []int{10, 3 * slot} {
			c := sockets.Dial(t, start(t, 64, policy).address)
			payload := bytes.Repeat([]byte("y"), size)
			message, want := encode(nil, payload), answered(payload)
			send(t, c, message[:len(message)-1])
			expect(t, c, want[:len(message)-1])
			send(t, c, message[len(message)-1:])
			expect(t, c, want[len(message)-1:])
		}
	}
}

// TestTooLong: a message that is too long ends the connection, after the answers to
// those before it.
func TestTooLong(t *testing.T) {
	for _, policy := range policies {
		c := sockets.Dial(t, start(t, 64, policy).address)
		payload := make([]byte, 1000)
		send(t, c, binary.BigEndian.AppendUint32(encode(nil, payload), longest+1))
		expect(t, c, answered(payload))
		if n, err := io.Copy(io.Discard, c); n != 0 || err != nil {
			t.Errorf("%v: behind the last answer: %d bytes, %v", policy, n, err)
		}
	}
}

// TestUnits: a hundred answers are as many units, which latency sends one by one and
// batch together.
func TestUnits(t *testing.T) {
	const messages = 100
	for _, policy := range []vecio.Policy{vecio.Latency, vecio.Batch} {
		f := start(t, 64, policy)
		c := sockets.Dial(t, f.address)
		payload := []byte("a payload")
		send(t, c, bytes.Repeat(encode(nil, payload), messages))
		expect(t, c, bytes.Repeat(answered(payload), messages))
		f.each(t, func(c *conn) {
			s := c.out.Stats()
			t.Logf("%v: %d units of %d pieces in %d calls", policy, s.Units, s.Pieces, s.Calls)
			together := s.Calls <= messages/10
			if s.Units != messages || together != (policy == vecio.Batch) || !together && s.Calls < messages/2 {
				t.Errorf("%v: %d units in %d calls", policy, s.Units, s.Calls)
			}
		})
	}
}

func TestMain(m *testing.M) { leak.Main(m) }

var policies = []vecio.Policy{vecio.Latency, vecio.Batch, vecio.Adaptive}

// A fixture is a server with so many slots, for two loops.
type fixture struct {
	address string
	servers []*server
}

// start starts one, and ends it with the test: then all slots are back.
func start(t *testing.T, slots int64, policy vecio.Policy) *fixture {
	t.Helper()
	g := must.Get(loop.NewGroup(2, nil))(t)
	a := must.Get(arena.New(&arena.Config{Locals: 2, Size: slots * slot}))(t)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	f := &fixture{l.Addr().String(), newServers(g, a, policy)}
	ended := make(chan error, 1)
	go func() { ended <- serve(g, l.(*net.TCPListener), f.servers) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for i := range a.Locals() {
			a.Local(i).Flush()
		}
		if s := a.Stats(); s.ByPurpose[arena.Read].Out != 0 || s.Stale != 0 {
			t.Errorf("%d slots are out, %d were stale", s.ByPurpose[arena.Read].Out, s.Stale)
		}
		g.Close()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// each calls look for every connection, on its loop.
func (f *fixture) each(t *testing.T, look func(c *conn)) {
	t.Helper()
	for _, s := range f.servers {
		done := make(chan struct{})
		must.Do(t, s.loop.Post(func() {
			for c := range s.conns {
				look(c)
			}
			close(done)
		}))
		<-done
	}
}

func encode(to, payload []byte) []byte {
	to = binary.BigEndian.AppendUint32(to, uint32(len(payload)))
	return append(to, payload...)
}

// answered is what comes back for a payload.
func answered(payload []byte) []byte {
	sum := crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli))
	return encode(nil, binary.BigEndian.AppendUint32(bytes.Clone(payload), sum))
}

func send(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	must.Get(c.Write(b))(t)
}

func expect(t *testing.T, c io.Reader, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d of %d bytes, %v; equal: %v", n, len(want), err, bytes.Equal(got, want))
	}
}
