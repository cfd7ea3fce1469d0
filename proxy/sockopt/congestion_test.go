package sockopt_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/sockopt"
)

func TestTryCongestion(t *testing.T) {
	if used, err := sockopt.TryCongestion("reno"); used != "reno" || err != nil { // every kernel has it, for everybody
		t.Errorf("reno: %q, %v", used, err)
	}
	usual, err := sys.DefaultCongestion()
	if err != nil {
		t.Skipf("this kernel does not name its congestion control: %v", err)
	}
	if used, err := sockopt.TryCongestion("no_such_thing"); used != usual || errnoOf(err) != syscall.ENOENT {
		t.Errorf("one that there is not: %q, %v, want %q, ENOENT", used, err, usual)
	}
}

func errnoOf(err error) error {
	if e, ok := err.(interface{ Unwrap() error }); ok {
		return e.Unwrap()
	}
	return err
}

// TestCongestion: a socket that connects has it from the beginning; one that cannot have it is counted.
func TestCongestion(t *testing.T) {
	ln := listen(t, sockopt.Options{})
	usual, err := sys.DefaultCongestion()
	if err != nil {
		t.Skipf("this kernel does not name its congestion control: %v", err)
	}
	for _, c := range []struct {
		name, want string
		refused    int64
	}{{"", usual, 0}, {"reno", "reno", 0}, {"no_such_thing", usual, 1}} {
		congestion := sockopt.NewCongestion(c.name)
		d := net.Dialer{Control: func(network, _ string, conn syscall.RawConn) error { return congestion.Control(network, conn) }}
		conn, err := d.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		got, err := sys.Congestion(sockets.FD(t, conn.(*net.TCPConn)))
		if got != c.want || err != nil || congestion.Refused() != c.refused || congestion.Name() != c.name {
			t.Errorf("%q: %q, %v, refused %d", c.name, got, err, congestion.Refused())
		}
		conn.Close()
	}
}
