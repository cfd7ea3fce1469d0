package switches

import (
	"context"
	"fmt"
	"net"
)

// A server is one way to serve many connections.
type server struct {
	name, about string
	// threaded says that it has a thread for each connection.
	threaded bool
	// serve echoes on every connection of the listener, which it owns, until
	// ctx is done; all of its connections are in open.
	serve func(ctx context.Context, l *net.TCPListener, open *census) error
}

// servers are the compared servers, in the report's order; the others are divided by the
// first.
var servers = []server{
	{"threads", "a thread per connection, blocking in recv and send", true, serveThreads},
	{"goroutines", "a goroutine per connection, on the runtime's poller", false, serveGoroutines},
	{"loops", "Penstock's event loops, one for each CPU", false, serveLoops},
	{"coroutines", "a coroutine per connection, on those loops", false, serveCoroutines},
}

// part is the name of the part that runs the server.
func (s *server) part() string { return "switches-" + s.name }

// IsPart reports whether RunPart runs a part of that name.
func IsPart(part string) bool {
	_, err := builtServer(part)
	return err == nil
}

// builtServer returns the server that a part runs.
func builtServer(part string) (*server, error) {
	for i := range servers {
		if s := &servers[i]; s.part() == part {
			return s, nil
		}
	}
	return nil, fmt.Errorf("switches: no part %q", part)
}
