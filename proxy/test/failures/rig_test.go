package failures

import (
	"crypto/tls"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

func TestMain(m *testing.M) {
	netns.Main() // serves, in the processes of backends
	// The tests mostly wait for timeouts, whatever the number of CPUs.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	leak.Main(m)
}

// serve has a load balancer serve a configuration. The directory has a certificate and its key,
// c.pem and k.pem.
func serve(t *testing.T, text string) *loadbalancer.Instance {
	t.Helper()
	cert, key := certificate.New(t, "test")
	return loadbalancer.Setting{Clients: 1000, Level: slog.LevelDebug}.Start(t, text, "c.pem", cert, "k.pem", key)
}

// A manner is the protocol of the clients: plain, or TLS that ends in the load balancer, where
// other code serves them.
type manner struct {
	name, listener string // the listener's part of the configuration
	wrap           func(net.Conn) net.Conn
}

var manners = []manner{
	{name: "plain", wrap: func(c net.Conn) net.Conn { return c }},
	{
		name: "tls", listener: "tls: {certificates: [{cert: c.pem, key: k.pem}]},",
		wrap: func(c net.Conn) net.Conn { return tls.Client(c, &tls.Config{InsecureSkipVerify: true}) },
	},
}

// A client is a connection whose server has sent its name.
type client struct {
	net.Conn
	of     string
	failed error // of its last write: a socket reports a reset once
}

func dial(t *testing.T, address string) (*client, error) {
	t.Helper()
	return manners[0].dial(t, address)
}

func (m *manner) dial(t *testing.T, address string) (*client, error) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, condition.Patience)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	return greeted(m.wrap(c))
}

func greeted(c net.Conn) (*client, error) {
	if err := c.SetDeadline(time.Now().Add(condition.Patience)); err != nil {
		return nil, err
	}
	name, err := sockets.ReadLine(c)
	if err != nil {
		c.Close()
		return nil, err
	}
	return &client{Conn: c, of: name}, nil
}

func (c *client) echo(text string) error {
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	back := make([]byte, len(text))
	_, err := io.ReadFull(c, back)
	if err == nil && string(back) != text {
		err = errors.New("received another text: " + string(back))
	}
	return err
}

// end waits for the end of a connection, and returns the time it took and the error.
func (c *client) end(t *testing.T) (took time.Duration, err error) {
	t.Helper()
	began := time.Now()
	if c.failed != nil {
		return 0, c.failed
	}
	_ = c.SetDeadline(began.Add(condition.Patience))
	if _, err = c.Read(make([]byte, 1)); err == nil {
		t.Error("received a byte instead of the end")
	}
	return time.Since(began), err
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
