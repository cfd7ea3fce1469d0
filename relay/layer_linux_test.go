package relay_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/driver"
)

// A swapped is a connection that can be replaced by another one.
type swapped struct{ net.Conn }

// A tlsLayer is TLS as the layer of a session.
type tlsLayer struct {
	*tls.Conn
	beneath *swapped
}

func (l *tlsLayer) Over(beneath net.Conn) { l.beneath.Conn = beneath }

// A layeredRig is a session on a loop, of sockets over which a Layer may be spoken.
type layeredRig struct {
	*looped
	*plainSession
	far [2]halfConn
}

// newLayeredRig has TLS spoken to the first side, to the second, or to both, with small buffers. limits may be nil.
func newLayeredRig(t *testing.T, spoken [2]bool, limits *relay.Limits, ahead [2]string) *layeredRig {
	t.Helper()
	return newLayeredRigOf(t, spoken, limits, ahead, func(*relay.Socket) {})
}

// newLayeredRigOf is newLayeredRig with a change to each socket.
func newLayeredRigOf(t *testing.T, spoken [2]bool, limits *relay.Limits, ahead [2]string, change func(*relay.Socket)) *layeredRig {
	t.Helper()
	cert, key := certificate.New(t, "layer.test")
	pair := must.Get(tls.X509KeyPair([]byte(cert), []byte(key)))(t)
	var layers [2]driver.Layer
	var networks [2]network
	for i := range networks {
		if networks[i] = smallTCP; !spoken[i] {
			continue
		}
		networks[i] = func(t testing.TB) (halfConn, net.Conn) {
			far, near := smallTCP(t)
			beneath := &swapped{near}
			layer := &tlsLayer{tls.Server(beneath, &tls.Config{Certificates: []tls.Certificate{pair}}), beneath}
			peer := tls.Client(far, &tls.Config{InsecureSkipVerify: true})
			shaken := make(chan error, 1)
			go func() { shaken <- layer.Handshake() }()
			must.Do(t, errors.Join(peer.HandshakeContext(context.Background()), <-shaken))
			layers[i] = layer
			return peer, near
		}
	}
	on := ofLoop().looped(t, newRelay(t, nil))
	g := &layeredRig{looped: on, plainSession: newPlainOf(t, on, networks[0], networks[1])}
	g.far, g.s.limits = [2]halfConn{g.A, g.B}, limits
	for i, s := range [2]*relay.Socket{&g.a, &g.b} {
		s.Layer, s.Ahead = layers[i], []byte(ahead[i])
		change(s)
	}
	g.do(g.plainSession.start)
	return g
}

// tcpOf is the TCP connection of a far end.
func tcpOf(c net.Conn) *net.TCPConn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return c.(*net.TCPConn)
}

// eachLayered runs a test with TLS at either side and at both.
func eachLayered(t *testing.T, test func(t *testing.T, spoken [2]bool)) {
	for name, spoken := range map[string][2]bool{"first": {true, false}, "second": {false, true}, "both": {true, true}} {
		t.Run(name, func(t *testing.T) { test(t, spoken) })
	}
}

// TestLayers: bytes and ends of file pass both ways at once, with readers that are slow at first.
func TestLayers(t *testing.T) {
	t.Parallel()

	eachLayered(t, func(t *testing.T, spoken [2]bool) {
		g := newLayeredRig(t, spoken, nil, [2]string{})
		const size = 3 << 20
		var all sync.WaitGroup
		for i := range g.far {
			sent := content(uint64(i), size)
			all.Go(func() {
				if _, err := g.far[i].Write(sent); err != nil {
					t.Error(err)
				}
				if err := g.far[i].CloseWrite(); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				g.turn() // so that the buffers fill
				if got, err := io.ReadAll(g.far[1-i]); err != nil || !bytes.Equal(got, sent) {
					t.Errorf("to side %d came %d bytes of %d, %v", 1-i, len(got), size, err)
				}
			})
		}
		all.Wait()
		<-g.done
		r := g.res
		if r.Reason != relay.ReasonEOF || g.err != nil || r.AToB.Copied != size || r.BToA.Copied != size || r.AToB.Lost+r.BToA.Lost != 0 {
			t.Errorf("%+v, %v", r, g.err)
		}
		if n := r.AToB.Fallbacks[relay.FallbackWrapped]; n != 1 || r.BToA.Fallbacks[relay.FallbackWrapped] != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// TestLayerHalfClosed: after one side's end of file the other one is served, message by message.
func TestLayerHalfClosed(t *testing.T) {
	t.Parallel()

	eachLayered(t, func(t *testing.T, spoken [2]bool) {
		g := newLayeredRig(t, spoken, nil, [2]string{})
		must.Do(t, g.far[0].CloseWrite())
		if n, err := g.far[1].Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Fatal(n, err)
		}
		for range 3 {
			mustSend(t, g.far[1], g.far[0], "answer")
		}
		must.Do(t, g.far[1].CloseWrite())
		if n, err := g.far[0].Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Error(n, err)
		}
		if <-g.done; g.err != nil || g.res.First != relay.SideA {
			t.Errorf("%+v, %v", g.res, g.err)
		}
	})
}

// mustSend passes a message on.
func mustSend(t *testing.T, from io.Writer, to io.Reader, message string) {
	t.Helper()
	write(t, from, message)
	sockets.Expect(t, to, message)
}

// TestLayerAhead: bytes that were read before come first, above the layer of the other side.
func TestLayerAhead(t *testing.T) {
	t.Parallel()

	for i, spoken := range [][2]bool{{false, true}, {true, false}} {
		var ahead [2]string
		ahead[i] = "ahead" // of the side without a layer
		g := newLayeredRig(t, spoken, nil, ahead)
		sockets.Expect(t, g.far[1-i], "ahead")
		mustSend(t, g.far[i], g.far[1-i], "then")
	}
}

// TestLayerCut: a session that is cut is reset, and TLS does not end in order, as it does after an idle time.
func TestLayerCut(t *testing.T) {
	t.Parallel()

	eachLayered(t, func(t *testing.T, spoken [2]bool) {
		for how, limits := range map[relay.Reason]*relay.Limits{relay.ReasonCanceled: nil, relay.ReasonIdle: {IdleTimeout: 50 * time.Millisecond}} {
			g := newLayeredRig(t, spoken, limits, [2]string{})
			if limits == nil {
				mustSend(t, g.far[0], g.far[1], "x")
				g.s.cut(errors.New("cut"))
			}
			for i, far := range g.far {
				want := error(syscall.ECONNRESET)
				if how == relay.ReasonIdle {
					want = io.EOF
				}
				if _, err := far.Read(make([]byte, 1)); !errors.Is(err, want) {
					t.Errorf("%v: side %d reads %v", how, i, err)
				}
			}
			if <-g.done; g.res.Reason != how {
				t.Errorf("%v: %+v, %v", how, g.res, g.err)
			}
		}
	})
}

// TestLayerReset: the reset of one side is passed on, after the bytes that came before it.
func TestLayerReset(t *testing.T) {
	t.Parallel()

	eachLayered(t, func(t *testing.T, spoken [2]bool) {
		for i := range 2 {
			g := newLayeredRig(t, spoken, nil, [2]string{})
			mustSend(t, g.far[i], g.far[1-i], "before")
			abort(t, tcpOf(g.far[i]))
			if _, err := g.far[1-i].Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("of side %d: %v", i, err)
			}
			if <-g.done; g.res.Reason != relay.ReasonReset {
				t.Errorf("%+v, %v", g.res, g.err)
			}
		}
	})
}

// An answering is a layer that answers each '?' by '!', carries all other bytes, and ends by '.'.
type answering struct {
	net.Conn
	most int // bytes of a read
}

func (l *answering) Over(beneath net.Conn) { l.Conn = beneath }

func (l *answering) CloseWrite() error {
	_, err := l.Conn.Write([]byte{'.'})
	return err
}

func (l *answering) Read(p []byte) (int, error) {
	for {
		n, err := l.Conn.Read(p[:min(l.most, len(p))])
		if n <= 0 {
			return n, err
		}
		if p[0] == '.' {
			return 0, io.EOF
		}
		kept := p[:0]
		for _, c := range p[:n] {
			if c == '?' {
				_, _ = l.Conn.Write([]byte{'!'})
			} else {
				kept = append(kept, c)
			}
		}
		if len(kept) > 0 {
			return len(kept), nil
		}
	}
}

// answeringRig has that layer at the first side.
func answeringRig(t *testing.T) *layeredRig {
	on := ofLoop().looped(t, newRelay(t, nil))
	g := &layeredRig{looped: on, plainSession: newPlainOf(t, on, smallTCP, smallTCP)}
	g.far, g.a.Layer = [2]halfConn{g.A, g.B}, &answering{most: 512}
	g.do(g.plainSession.start)
	return g
}

// TestLayerAnswers: what a layer writes while it reads goes out at once, though the session has nothing to write.
func TestLayerAnswers(t *testing.T) {
	t.Parallel()

	g := answeringRig(t)
	for range 3 {
		write(t, g.far[0], "?x")
		for want, from := range map[byte]net.Conn{'!': g.far[0], 'x': g.far[1]} {
			var got [1]byte
			if _, err := io.ReadFull(from, got[:]); err != nil || got[0] != want {
				t.Fatalf("%q, %v", got, err)
			}
		}
	}
}

// TestLayerAnswersAreBounded: a peer that has the layer answer and does not read is not read for ever, and goes on
// when it reads.
func TestLayerAnswersAreBounded(t *testing.T) {
	t.Parallel()

	g := answeringRig(t)
	questions := bytes.Repeat([]byte{'?'}, 2<<20)
	wrote := make(chan error, 1)
	go func() {
		_, err := g.far[0].Write(questions)
		wrote <- err
	}()
	most := 0
	for settled := 0; settled < 50; { // until nothing moves any more
		n := 0
		g.do(func() { n = g.s.driven.LayerPending() })
		if n > most {
			most, settled = n, 0
		}
		settled++
		select {
		case err := <-wrote:
			t.Fatalf("all questions were read, %v", err)
		case <-time.After(2 * time.Millisecond):
		}
	}
	if most == 0 || most > 128<<10 {
		t.Errorf("%d bytes of answers wait", most)
	}
	g.do(func() {
		if _, spare := g.s.driven.LayerMemory(); !spare {
			t.Error("a session that waits has the driver's memory")
		}
	})
	answers := make([]byte, len(questions))
	must.Get(io.ReadFull(g.far[0], answers))(t)
	if err := <-wrote; err != nil || bytes.Count(answers, []byte{'!'}) != len(answers) {
		t.Error(err)
	}
	mustSend(t, g.far[0], g.far[1], "on")
}

// TestLayerIdle: a session that waits has its loop sleep, and holds no memory of the relay's.
func TestLayerIdle(t *testing.T) {
	t.Parallel()

	g := newLayeredRig(t, [2]bool{true, false}, nil, [2]string{})
	mustSend(t, g.far[0], g.far[1], "x")
	var blocked loop.Stats
	g.do(func() { blocked = g.loop.Stats() })
	for range 50 { // each message is one turn or a few, and an idle session none
		mustSend(t, g.far[0], g.far[1], "message")
		mustSend(t, g.far[1], g.far[0], "answer")
	}
	g.do(func() {
		if size, spare := g.s.driven.LayerMemory(); size != 0 || !spare {
			t.Errorf("an idle session has %d bytes of memory for its layer, and the driver its own: %v", size, spare)
		}
	})
	if turns := g.loop.Stats().Turns - blocked.Turns; turns > 1000 {
		t.Errorf("%d turns for 100 messages", turns)
	}
}
