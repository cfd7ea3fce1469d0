package worker_test

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// plainSearch connects to one address, and makes no garbage.
type plainSearch struct {
	step   worker.Step
	limits *relay.Limits
	header []byte
}

func (s *plainSearch) Begin(*worker.Client, int64) {}
func (s *plainSearch) Next(int64) worker.Step      { return s.step }
func (s *plainSearch) Abandon(int64) bool          { return false }

func (s *plainSearch) Resolved([]netip.Addr, error)         {}
func (s *plainSearch) Failed(error, int64)                  {}
func (s *plainSearch) ProxyHeader(b []byte) []byte          { return append(b, s.header...) }
func (s *plainSearch) Reached(int64) (*relay.Limits, error) { return s.limits, nil }
func (s *plainSearch) Err() error                           { return errGivenUp }
func (s *plainSearch) Close()                               {}

// plainBond and plainAdmitter keep no books.
type plainBond struct{ ended int }

func (b *plainBond) Ended(relay.Result, error) { b.ended++ }
func (b *plainBond) Names() (string, string)   { return "", "" }

type plainAdmitter struct{ in, left int }

func (a *plainAdmitter) CanAccept(int64) error { return nil }
func (a *plainAdmitter) Admit(c *worker.Client, identified bool, now int64) error {
	a.in++
	if identified {
		return a.AdmitSource(c, now)
	}
	return nil
}

func (a *plainAdmitter) AdmitSource(c *worker.Client, _ int64) error {
	if c.Source().Known() {
		c.AdmissionToken = 1
	}
	return nil
}
func (a *plainAdmitter) Released(uint64) { a.left++ }

// Everything that a service may want of a client leaves nothing to the collector.
func TestChurnOfAServiceMakesNoGarbage(t *testing.T) {
	server := plainServer(t)
	step := connectTo(server)
	step.ProxyHeader = true
	binding, who := new(plainBond), new(plainAdmitter)
	limits := &relay.Limits{IdleTimeout: time.Minute, Of: binding}
	s := &worker.Service{
		Admitter: who,
		Preread:  worker.Preread{Header: &proxyproto.Policy{}, Data: true},
		NewSearch: func() worker.Search {
			return &plainSearch{step: step, limits: limits, header: []byte("p")}
		},
	}
	r := newRig(t, func(c *worker.Config) { c.Listeners[0].Service, c.Loops = s, 1 })
	r.serve(t)
	at := netip.MustParseAddrPort(r.addr.String())
	to := &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	sent := []byte("PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\nx")
	const clients = 500
	churn := func() {
		for range clients {
			prefacedClient(t, to, sent)
		}
		eventually(t, func() bool { return r.Active() == 0 })
	}
	churn()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	churn()
	runtime.ReadMemStats(&after)
	if n := float64(after.Mallocs-before.Mallocs) / clients; n > 0.5 && !race.Enabled {
		t.Errorf("%.2f allocations for each connection, %d bytes", n, (after.TotalAlloc-before.TotalAlloc)/clients)
	}
	if sum := r.Summary(); sum.Refused != 0 || sum.Accepted != 2*clients || binding.ended != 2*clients || who.in != 2*clients || who.left != 2*clients {
		t.Errorf("the summary is %+v; %d have ended, %d of %d left", sum, binding.ended, who.left, who.in)
	}
}

// prefacedClient sends a header and a byte, and has one byte returned, without garbage.
func prefacedClient(t *testing.T, to syscall.Sockaddr, sent []byte) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Connect(fd, to); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Write(fd, sent); err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if n, err := syscall.Read(fd, b[:]); n != 1 || err != nil {
		t.Fatalf("read %d bytes, %v", n, err)
	}
}

// Searches are used again, by the next client of the same service.
func TestSearchesAreUsedAgain(t *testing.T) {
	t.Parallel()

	d := straight(echo(t))
	r := directed(t, d, func(c *worker.Config, _ *worker.Service) { c.Loops = 1 })
	r.serve(t)
	for range 20 {
		if err := r.hello(); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.made.Load(); n != 1 || d.begun.Load() != 20 {
		t.Errorf("%d searches were made for %d clients, one after the other", n, d.begun.Load())
	}
}

// A list has the state in which clients wait.
func TestListingOfThoseWhoWait(t *testing.T) {
	t.Parallel()

	for state, x := range map[worker.State]struct {
		preread worker.Preread
		step    worker.Step
	}{
		worker.Prereading: {preread: worker.Preread{Hello: true}},
		worker.Waiting:    {step: worker.Step{Action: worker.Park}},
		worker.Responding: {step: worker.Step{Action: worker.Respond, Bytes: []byte("sorry"), Timeout: time.Minute}},
	} {
		d := &director{next: func(*worker.Client, int) worker.Step { return x.step }}
		r := directed(t, d, func(_ *worker.Config, s *worker.Service) { s.Preread = x.preread })
		r.serve(t)
		c := r.dial(t)
		eventually(t, func() bool {
			for s := range r.Sessions(context.Background(), new(worker.Query)) {
				if s.State == state && s.Client == c.LocalAddr().String() && s.Listener == "first" {
					return true
				}
			}
			return false
		})
	}
}

// The limit may be changed while clients wait for it.
func TestSetMaxConnections(t *testing.T) {
	t.Parallel()

	r := newRig(t, func(c *worker.Config) { c.MaxConnections = 1 })
	r.serve(t)
	var conns []net.Conn
	for range 5 {
		conns = append(conns, r.dial(t))
	}
	talk(t, conns[0])
	if n := r.Active(); n != 1 {
		t.Errorf("%d are active under a limit of 1", n)
	}
	r.SetMaxConnections(5)
	for _, c := range conns {
		talk(t, c)
	}
	r.SetMaxConnections(2) // those that are there stay
	for _, c := range conns {
		talk(t, c)
	}
	waits := r.dial(t)
	for _, c := range conns[:3] {
		c.Close()
	}
	eventually(t, func() bool { return r.Active() == 2 })
	conns[3].Close()
	talk(t, waits)
}
