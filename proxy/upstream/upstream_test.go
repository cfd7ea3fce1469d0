//go:build linux

package upstream_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/proxy/upstream"
)

func TestMain(m *testing.M) { leak.Main(m) }

// serve accepts and closes connections on network until the test ends, and
// returns its address.
func serve(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(context.Background(), network, addr)
	if err != nil {
		t.Fatal(err)
	}
	sockets.Serve(t, ln, func(net.Conn) {})
	return ln
}

func group(t *testing.T, cfg *upstream.Config, targets ...string) *upstream.Group {
	t.Helper()
	var addrs []socket.Address
	for _, target := range targets {
		addr, err := socket.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, addr)
	}
	g, err := upstream.New(addrs, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// dialed dials and returns the address of the target that answered.
func dialed(t *testing.T, g *upstream.Group) string {
	t.Helper()
	conn, err := g.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.RemoteAddr().String()
}

func TestNewSaysWhatToWrite(t *testing.T) {
	for target, want := range map[string]string{
		":80":               "write 127.0.0.1:80",
		"a:0":               "needs the port",
		"unix:/p?mode=0600": "write unix:/p",
	} {
		addr, err := socket.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := upstream.New([]socket.Address{addr}, nil); !errors.Is(err, socket.ErrAddress) || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%s): %v, want %q", target, err, want)
		}
	}
	if _, err := upstream.New(nil, nil); !errors.Is(err, socket.ErrAddress) {
		t.Errorf("New without targets: %v", err)
	}
}

func TestRoundRobin(t *testing.T) {
	a := serve(t, "tcp", "127.0.0.1:0").Addr().String()
	b := serve(t, "tcp", "127.0.0.1:0").Addr().String()
	c := serve(t, "tcp", "[::1]:0").Addr().String()
	g := group(t, nil, a, b, c)
	for i, want := range []string{a, b, c, a, b, c, a} {
		if got := dialed(t, g); got != want {
			t.Errorf("dial %d went to %s, want %s", i, got, want)
		}
	}
}

func TestNextTargetWhenOneRefuses(t *testing.T) {
	down, a := sockets.Refusing(t), serve(t, "tcp", "127.0.0.1:0").Addr().String()
	unix := filepath.Join(t.TempDir(), "s")
	serve(t, "unix", unix)
	g := group(t, nil, down, a, "unix:"+unix)
	for i, want := range []string{a, a, unix, a, a, unix} {
		if got := dialed(t, g); got != want {
			t.Errorf("dial %d went to %s, want %s", i, got, want)
		}
	}
}

// soon is a timeout for what never answers. Who answers does so in time, also on a busy
// machine.
const soon = time.Second

func TestNextTargetWhenOneIsSilent(t *testing.T) {
	a := serve(t, "tcp", "127.0.0.1:0").Addr().String()
	g := group(t, &upstream.Config{ConnectTimeout: soon}, sockets.Silent(t), a)
	if got := dialed(t, g); got != a {
		t.Errorf("dial went to %s, want %s", got, a)
	}
}

func TestErrorNamesTargetsAndCauses(t *testing.T) {
	down, mute, gone := sockets.Refusing(t), sockets.Silent(t), "unix:"+filepath.Join(t.TempDir(), "gone")
	g := group(t, &upstream.Config{ConnectTimeout: soon}, down, mute, gone)
	_, err := g.Dial(context.Background())
	for _, cause := range []error{syscall.ECONNREFUSED, context.DeadlineExceeded, syscall.ENOENT} {
		if !errors.Is(err, cause) {
			t.Errorf("error is no %v: %v", cause, err)
		}
	}
	want := "connect to " + down + ": connection refused; " +
		"connect to " + mute + ": no answer in time (connect timeout 1s): context deadline exceeded; " +
		"connect to " + gone + ": no such file or directory"
	if err.Error() != want {
		t.Errorf("error is\n%v, want\n%v", err, want)
	}
}

func TestEveryAddressOfANameIsTried(t *testing.T) {
	ln := serve(t, "tcp", "127.0.0.3:0")
	port := ln.Addr().(*net.TCPAddr).AddrPort().Port()
	g := group(t, nil, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.9"), port).String(), "name.test:"+portText(port))
	lookups := 0
	g.SetLookup(func(_ context.Context, network, host string) ([]netip.Addr, error) {
		lookups++
		if network != "ip" || host != "name.test" {
			t.Errorf("lookup of %s %s", network, host)
		}
		return []netip.Addr{
			netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::ffff:127.0.0.2"), netip.MustParseAddr("127.0.0.3"),
		}, nil
	})
	for range 3 {
		if got := dialed(t, g); got != ln.Addr().String() {
			t.Errorf("dial went to %s, want %s", got, ln.Addr())
		}
	}
	if lookups != 3 {
		t.Errorf("%d lookups for 3 dials", lookups)
	}
}

func portText(port uint16) string {
	_, text, _ := net.SplitHostPort(netip.AddrPortFrom(netip.IPv4Unspecified(), port).String())
	return text
}

// The first address never answers; the second must get its part of the timeout.
func TestEveryAddressGetsItsShareOfTheTimeout(t *testing.T) {
	mute := netip.MustParseAddrPort(sockets.Silent(t))
	ln := serve(t, "tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), mute.Port()).String())
	g := group(t, &upstream.Config{ConnectTimeout: 2 * soon}, "name.test:"+portText(mute.Port()))
	g.SetLookup(func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{mute.Addr(), netip.MustParseAddr("127.0.0.2")}, nil
	})
	if got := dialed(t, g); got != ln.Addr().String() {
		t.Errorf("dial went to %s, want %s", got, ln.Addr())
	}
}

func TestAddressesThatAllFailAreNamed(t *testing.T) {
	down := netip.MustParseAddrPort(sockets.Refusing(t))
	g := group(t, nil, "name.test:"+portText(down.Port()))
	g.SetLookup(func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{down.Addr(), netip.MustParseAddr("127.0.0.2")}, nil
	})
	_, err := g.Dial(context.Background())
	want := "connect to name.test:" + portText(down.Port()) + ": " + down.String() + ": connection refused; " +
		"127.0.0.2:" + portText(down.Port()) + ": connection refused"
	if !errors.Is(err, syscall.ECONNREFUSED) || err.Error() != want {
		t.Errorf("error is\n%v, want\n%v", err, want)
	}
}

func TestNameWithoutAddress(t *testing.T) {
	g := group(t, nil, "name.test:80")
	g.SetLookup(func(context.Context, string, string) ([]netip.Addr, error) { return nil, nil })
	_, err := g.Dial(context.Background())
	var dns *net.DNSError
	if !errors.As(err, &dns) || !dns.IsNotFound {
		t.Errorf("error is %v, want a DNS error", err)
	}
}

func TestLocalhostIsResolved(t *testing.T) {
	ln := serve(t, "tcp", "127.0.0.1:0")
	g := group(t, nil, "localhost:"+portText(ln.Addr().(*net.TCPAddr).AddrPort().Port()))
	if got := dialed(t, g); got != ln.Addr().String() {
		t.Errorf("dial went to %s, want %s", got, ln.Addr())
	}
}

func TestEndOfContextEndsTheDial(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	mute := sockets.Silent(t)
	g := group(t, nil, mute, mute)
	tried := make(chan struct{}, 2)
	g.AddControl(func(string, string, syscall.RawConn) error {
		tried <- struct{}{}
		return nil
	})
	go func() {
		<-tried
		cancel()
	}()
	if _, err := g.Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want context.Canceled", err)
	}
	if len(tried) != 0 {
		t.Error("another target was tried")
	}
}

func TestOwnFaultEndsTheDial(t *testing.T) {
	addr := serve(t, "tcp", "127.0.0.1:0").Addr().String()
	var downs []string
	g := group(t, &upstream.Config{OnDown: func(target string, _ error) { downs = append(downs, target) }}, addr, addr)
	tries := 0
	g.AddControl(func(string, string, syscall.RawConn) error { tries++; return syscall.EMFILE })
	if _, err := g.Dial(context.Background()); !errors.Is(err, syscall.EMFILE) || tries != 1 || len(downs) != 0 {
		t.Errorf("error %v after %d tries, down %q", err, tries, downs)
	}
}

func TestDownAndUpAreToldOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "s")
	var told []string
	g := group(t, &upstream.Config{
		OnDown: func(target string, cause error) {
			told = append(told, "down "+target)
			if !errors.Is(cause, syscall.ENOENT) {
				t.Errorf("cause is %v", cause)
			}
		},
		OnUp: func(target string) { told = append(told, "up "+target) },
	}, "unix:"+name)
	now := time.Unix(1_000_000, 0)
	g.SetNow(func() time.Time { return now })
	fail := func() {
		t.Helper()
		if _, err := g.Dial(context.Background()); err == nil {
			t.Fatal("dial of nothing succeeds")
		}
	}
	fail()
	fail()
	now = now.Add(time.Hour)
	fail()
	serve(t, "unix", name)
	dialed(t, g)
	dialed(t, g)
	// One that answers now and then is told of once a second at most.
	for range 10 {
		if err := os.Rename(name, name+".gone"); err != nil {
			t.Fatal(err)
		}
		fail()
		if err := os.Rename(name+".gone", name); err != nil {
			t.Fatal(err)
		}
		dialed(t, g)
	}
	if want := "down unix:" + name + " up unix:" + name; strings.Join(told, " ") != want {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestConcurrentDialsShareTheTurn(t *testing.T) {
	a := serve(t, "tcp", "127.0.0.1:0").Addr().String()
	b := serve(t, "tcp", "127.0.0.1:0").Addr().String()
	g := group(t, nil, a, b)
	var mu sync.Mutex
	count := map[string]int{}
	var dials sync.WaitGroup
	for range 20 {
		dials.Go(func() {
			conn, err := g.Dial(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			mu.Lock()
			defer mu.Unlock()
			count[conn.RemoteAddr().String()]++
		})
	}
	dials.Wait()
	if count[a] != 10 || count[b] != 10 {
		t.Errorf("dials went to %v, want 10 each", count)
	}
}
