package admission

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/sockopt"
)

// TestLeavesForGood: whatever is committed while the server leaves, it does not listen afterwards.
func TestLeavesForGood(t *testing.T) {
	t.Parallel()
	at := sockopt.Address{Network: "tcp", Name: "127.0.0.1:0"}
	open := func() (*listener.Listener, error) { return listener.Bind(t.Context(), at, nil) }
	for range 200 {
		s := NewServer("test", 1, slog.New(slog.DiscardHandler), &http.Server{}, func(conn net.Conn, release func()) {})
		must.Get(s.Prepare(t.Context(), at, open))(t).Commit()
		other := at
		other.Name = "localhost:0"
		move := must.Get(s.Prepare(t.Context(), other, open))(t)
		var both sync.WaitGroup
		both.Go(s.Leave)
		both.Go(move.Commit)
		both.Wait()
		if at := s.Addr(); at != "" {
			t.Fatalf("it has left and listens at %s", at)
		}
		must.Do(t, s.Close(t.Context()))
	}
}
