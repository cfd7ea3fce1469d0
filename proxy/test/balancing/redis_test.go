package balancing

import (
	"os"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/software"
)

// A store is a Redis server.
type store struct {
	addr, port string
	*os.Process
}

func newStore(t *testing.T) *store {
	t.Helper()
	server, s := software.Need(t, "redis-server", "redis-server"), new(store)
	var host string
	s.addr, host, s.port = software.Addr(t)
	dir := software.Dir(t, nil)
	s.Process = software.Service{
		Command: []string{
			server, "--bind", host, "--port", s.port,
			"--dir", dir, "--save", "", "--appendonly", "no",
		},
		Dir: dir, Ready: "Ready to accept connections", Addr: s.addr, Stop: syscall.SIGTERM,
	}.Start(t)
	return s
}
