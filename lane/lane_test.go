package lane_test

import (
	"bytes"
	"io"
	"net"
	"testing"
)

// talk sends a message each way until the session has left user space.
func (p pair) talk(t testing.TB) {
	t.Helper()
	n := 0
	until(t, "the session leaves user space", func() bool {
		n++
		p.exchange(t, []byte("there"), p.client, p.server)
		p.exchange(t, []byte("and back"), p.server, p.client)
		return p.Left()
	})
}

func (p pair) exchange(t testing.TB, message []byte, from, to *net.TCPConn) {
	t.Helper()
	if _, err := from.Write(message); err != nil {
		t.Fatal(err)
	}
	p.sent[btoi(from == p.server)] += uint64(len(message))
	got := make([]byte, len(message))
	if _, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, message) {
		t.Fatalf("%q, %v; left %v, refused %v", got, err, p.Left(), p.Refused())
	}
}

// TestJoin: a session leaves user space, goes on there, and ends with the ends of file of both
// sides, every byte counted.
func TestJoin(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			p := joined(t, l, "tcp", address)
			p.talk(t)
			big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
			done := make(chan error, 1)
			go func() {
				_, err := p.client.Write(big)
				done <- err
			}()
			got := make([]byte, len(big))
			if _, err := io.ReadFull(p.server, got); err != nil || !bytes.Equal(got, big) {
				t.Fatal("bulk:", err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			p.finish(t, len(big))
		})
	}
	t.Logf("%+v", l.Stats())
	until(t, "nothing lingers", func() bool { return l.Stats().Lane == 0 })
	if st := l.Stats(); st.Joined != 2 || st.Left != 2 || st.Ended != 2 || st.Reset != 0 || st.Failed != 0 {
		t.Errorf("%+v", st)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// finish ends a session by both half-closes, and compares the bytes that it has counted; the client has sent more than it has noted.
func (p pair) finish(t *testing.T, more int) {
	t.Helper()
	p.client.CloseWrite()
	if b, err := io.ReadAll(p.server); err != nil || len(b) != 0 {
		t.Fatal(b, err)
	}
	p.exchange(t, []byte("after the half-close"), p.server, p.client)
	p.server.Close()
	if b, err := io.ReadAll(p.client); err != nil || len(b) != 0 {
		t.Fatal(b, err)
	}
	p.Wait()
	if got, want := p.Bytes(), *p.sent; got != [2]uint64{want[0] + uint64(more), want[1]} {
		t.Errorf("counted %v, want %v and %d", got, want, more)
	}
}
