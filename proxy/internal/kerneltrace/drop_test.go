package kerneltrace

import (
	"io"
	"net"
	"testing"
)

// TestClosedConnectionsDropNothing: a connection that is closed, by whichever side and with bytes unread, as by a
// health check, has lost no packet: what is left in its queues is freed with it.
func TestClosedConnectionsDropNothing(t *testing.T) {
	if !alone(t) {
		return
	}
	l := listen(t, "127.0.0.1:0")
	tracer := open(t, self)
	const times = 20
	for range times {
		for _, end := range []func(client, server *net.TCPConn){
			func(client, server *net.TCPConn) { client.Close(); server.Close() },
			func(client, server *net.TCPConn) { server.Close(); client.Close() },
			func(client, server *net.TCPConn) {
				client.CloseWrite()
				io.Copy(io.Discard, server)
				server.Close()
				io.Copy(io.Discard, client)
				client.Close()
			},
			func(client, server *net.TCPConn) { client.Close(); io.Copy(io.Discard, server); server.Close() },
			func(client, server *net.TCPConn) { server.Write([]byte("unread")); client.Close(); server.Close() },
			func(client, server *net.TCPConn) {
				client.Write([]byte("unread"))
				client.SetLinger(0)
				client.Close()
				server.Close()
			},
			func(client, server *net.TCPConn) { client.SetLinger(0); client.Close(); server.Close() },
			func(client, server *net.TCPConn) { client.Close(); server.Write([]byte("late")); server.Close() },
		} {
			client, server := pair(t, l)
			end(client, server)
		}
	}
	r := until(t, tracer, "resets", func(r *Reading) bool {
		return event(r, func(e *Event) bool { return e.Kind == ResetSent && e.Side == Connected }) >= times
	})
	for i := range r.Events {
		if e := &r.Events[i]; e.Kind == Drop {
			t.Errorf("%+v", e)
		}
	}
}
