package switches

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// part is a server that runs in this process.
type part struct {
	t       *testing.T
	address string
	in      *io.PipeWriter
	out     *bufio.Scanner
	ended   chan error
}

// runPart runs a part, until the test ends at the latest.
func runPart(t *testing.T, ctx context.Context, name string) *part {
	t.Helper()
	in, asks := io.Pipe()
	says, out := io.Pipe()
	p := &part{t: t, in: asks, out: bufio.NewScanner(says), ended: make(chan error, 1)}
	go func() {
		err := RunPart(ctx, name, in, out)
		_ = out.CloseWithError(io.EOF)
		p.ended <- err
	}()
	t.Cleanup(func() { _ = asks.Close() })
	var l listening
	p.read(&l)
	p.address = l.Address
	return p
}

func (p *part) read(v any) {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("no output: %v, %v", p.out.Err(), <-p.ended)
	}
	if err := json.Unmarshal(p.out.Bytes(), v); err != nil {
		p.t.Fatal(err)
	}
}

// ask requests an account.
func (p *part) ask() account {
	p.t.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		p.t.Fatal(err)
	}
	var a account
	p.read(&a)
	return a
}

// until requests accounts until one is as wanted.
func (p *part) until(wanted func(account) bool) account {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		a := p.ask()
		if wanted(a) {
			return a
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("still %+v", a)
		}
	}
}

// clients opens connections that are closed when the test ends.
func (p *part) clients(n int) []*net.TCPConn {
	p.t.Helper()
	conns := make([]*net.TCPConn, n)
	for i := range conns {
		c, err := net.Dial("tcp", p.address)
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { _ = c.Close() })
		conns[i] = c.(*net.TCPConn)
	}
	return conns
}

// forEachServer runs a test with every server.
func forEachServer(t *testing.T, test func(t *testing.T, part string)) {
	for i := range servers {
		s := &servers[i]
		t.Run(s.name, func(t *testing.T) { test(t, s.part()) })
	}
}

// content returns a client's bytes in its n-th turn. They differ from any other client's, and in
// some turns they are longer than a server's buffer.
func content(client, turn int) []byte {
	return bytes.Repeat([]byte{byte(client), byte(turn), byte(client * turn)}, 1+turn*turn*500)
}

func TestServersEchoToEveryClientItsOwn(t *testing.T) {
	forEachServer(t, func(t *testing.T, name string) {
		p := runPart(t, t.Context(), name)
		conns := p.clients(few)
		var total int64
		for turn := range 5 {
			for i, c := range conns { // all of them at once
				b := content(i, turn)
				total += int64(len(b))
				if _, err := c.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			for i, c := range conns {
				want := content(i, turn)
				got := make([]byte, len(want))
				if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("client %d, turn %d: not the bytes it sent, %v", i, turn, err)
				}
			}
		}
		p.until(func(a account) bool { return a.Echoed == total && a.Connections == few })
		for i, c := range conns {
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
				t.Errorf("client %d: %d bytes more, %v", i, len(b), err)
			}
		}
		p.until(func(a account) bool { return a.Connections == 0 })
	})
}

func TestAccountsGrow(t *testing.T) {
	forEachServer(t, func(t *testing.T, name string) {
		p := runPart(t, t.Context(), name)
		c, before := p.clients(1)[0], p.ask()
		for range 100 {
			if _, err := c.Write(make([]byte, Size)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, make([]byte, Size)); err != nil {
				t.Fatal(err)
			}
		}
		// All is within one process, which may need no context switch until it sleeps.
		after := p.until(func(a account) bool { return a.Echoed == 100*Size && a.Switches > before.Switches })
		if after.At <= before.At || after.CPU <= before.CPU {
			t.Errorf("%+v after %+v", after, before)
		}
	})
}

// threads returns this process's threads, by their ids.
func threads(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids
}

// TestAThreadServesOneConnection: threads end with their connections. The runtime may have made
// other threads meanwhile, which stay.
func TestAThreadServesOneConnection(t *testing.T) {
	p := runPart(t, t.Context(), "switches-threads")
	conns := p.clients(few)
	p.until(func(a account) bool { return a.Connections == few && len(threads(t)) >= few })
	serving := threads(t)
	for _, c := range conns {
		_ = c.Close()
	}
	p.until(func(a account) bool {
		left := threads(t)
		ended := slices.DeleteFunc(slices.Clone(serving), func(id string) bool { return slices.Contains(left, id) })
		return a.Connections == 0 && len(ended) >= few/2
	})
}

func TestTheEndOfAPartEndsItsConnections(t *testing.T) {
	for how, end := range map[string]func(p *part, cancel func()){
		"its context": func(_ *part, cancel func()) { cancel() },
		"its input":   func(p *part, _ func()) { _ = p.in.Close() },
	} {
		t.Run(how, func(t *testing.T) {
			forEachServer(t, func(t *testing.T, name string) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p := runPart(t, ctx, name)
				conns := p.clients(3)
				p.until(func(a account) bool { return a.Connections == 3 })
				end(p, cancel)
				if err := <-p.ended; err != nil {
					t.Errorf("ended with %v", err)
				}
				for _, c := range conns {
					if b, _ := io.ReadAll(c); len(b) > 0 {
						t.Errorf("got %q", b)
					}
				}
			})
		})
	}
}

func TestAClientThatResetsCostsNobodyElse(t *testing.T) {
	forEachServer(t, func(t *testing.T, name string) {
		p := runPart(t, t.Context(), name)
		conns := p.clients(2)
		p.until(func(a account) bool { return a.Connections == 2 })
		if err := conns[0].SetLinger(0); err != nil {
			t.Fatal(err)
		}
		_ = conns[0].Close()
		p.until(func(a account) bool { return a.Connections == 1 })
		if _, err := conns[1].Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conns[1], make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
}

func TestRunPartThatIsNone(t *testing.T) {
	const name = "umpire"
	err := RunPart(t.Context(), name, strings.NewReader(""), io.Discard)
	if err == nil || !strings.Contains(err.Error(), name) || IsPart(name) {
		t.Errorf("got %v", err)
	}
}
