package relay_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// beneath hides a connection but for its being there.
type beneath struct{ net.Conn }

func (b beneath) NetConn() net.Conn { return b.Conn }

func (b beneath) CloseWrite() error { return b.Conn.(*net.TCPConn).CloseWrite() }

// say writes a text.
func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// TestCopyAfterCloseWrite: the ordinary proxy of two copies, each followed by CloseWrite. A side
// that its owner has ended gets to TCP_CLOSE by the other's end of file, which is no reset.
func TestCopyAfterCloseWrite(t *testing.T) {
	t.Parallel()

	for _, engine := range []relay.Engine{relay.EngineAuto, relay.EngineSplice, relay.EngineCopy} {
		for name, wrap := range map[string]func(net.Conn) io.Reader{
			"plain":   func(c net.Conn) io.Reader { return c },
			"wrapped": func(c net.Conn) io.Reader { return beneath{c} },
			"limited": func(c net.Conn) io.Reader { return io.LimitReader(c, 1<<40) },
		} {
			t.Run(engine.String()+"/"+name, func(t *testing.T) {
				r := newRelay(t, &relay.Config{Engine: engine})
				for range 20 {
					client, a := sockets.TCPPair(t)
					b, server := sockets.TCPPair(t)
					errs := make(chan error, 2)
					oneWay := func(dst, src *net.TCPConn) {
						_, err := r.Copy(dst, wrap(src))
						errs <- errors.Join(err, dst.CloseWrite())
					}
					go oneWay(b, a)
					go oneWay(a, b)
					say(t, client, "question")
					client.CloseWrite()
					if q, err := io.ReadAll(server); string(q) != "question" || err != nil {
						t.Fatalf("%q, %v", q, err)
					}
					say(t, server, "answer")
					server.Close()
					if answer, err := io.ReadAll(client); string(answer) != "answer" || err != nil {
						t.Fatalf("%q, %v", answer, err)
					}
					client.Close()
					for range 2 {
						if err := <-errs; err != nil {
							t.Fatal(err)
						}
					}
				}
			})
		}
	}
}

// TestJoinAfterCloseWrite: the same of a session one of whose sides had been ended before.
func TestJoinAfterCloseWrite(t *testing.T) {
	t.Parallel()

	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"plain":   func(c net.Conn) net.Conn { return c },
		"wrapped": func(c net.Conn) net.Conn { return beneath{c} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRelay(t, &relay.Config{})
			for range 20 {
				client, a := sockets.TCPPair(t)
				b, server := sockets.TCPPair(t)
				b.CloseWrite() // the whole question has been sent
				ended := make(chan error, 1)
				go func() {
					res, err := r.Join(t.Context(), wrap(a), wrap(b))
					if res.Reason != relay.ReasonEOF {
						err = errors.Join(err, errors.New(res.Reason.String()))
					}
					ended <- err
				}()
				if q, err := io.ReadAll(server); len(q) > 0 || err != nil {
					t.Fatalf("%q, %v", q, err)
				}
				say(t, server, "answer")
				server.Close()
				if answer, err := io.ReadAll(client); string(answer) != "answer" || err != nil {
					t.Fatalf("%q, %v", answer, err)
				}
				client.Close()
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
