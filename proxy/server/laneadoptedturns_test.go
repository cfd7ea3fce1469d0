package server_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// TestLaneAdoptedGentleEnd: an adopted session whose client waits for its answer is not quiet, and is waited for as others are: it ends once it has the answer, goes
// on after the grace, or ends then. Its turn comes within the time over which ends are spread.
func TestLaneAdoptedGentleEnd(t *testing.T) {
	t.Parallel()

	text := `listeners: [{name: web, bind: "127.0.0.1:0", upstream: u}, {name: api, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, health_check: off, endpoints: [` + sockets.Server(t, silentTo) + `]}]`
	asks := func(clients []*net.TCPConn) {
		for _, c := range clients {
			if _, err := io.WriteString(c, "?"); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, clients := adopts(t, text, text, asks, "web", "api")
	if r == nil {
		return
	}
	end := func(q admin.EndQuery) (ended admin.Ended) {
		t.Helper()
		ended, err := r.EndSessions(t.Context(), q, "test")
		if err != nil {
			t.Fatal(err)
		}
		return ended
	}
	gently := admin.EndQuery{All: true, Quiet: 50 * time.Millisecond, Grace: 300 * time.Millisecond}
	if e := end(gently); e.Touched != 2 || e.Kept != 2 || e.Ended != 0 || !e.Done {
		t.Errorf("while they wait for answers: %+v", e)
	}
	web := admin.EndQuery{SessionQuery: admin.SessionQuery{Listener: "web"}, Quiet: gently.Quiet, Grace: patience}
	ended := make(chan admin.Ended, 1)
	go func() {
		e, _ := r.EndSessions(t.Context(), web, "test")
		ended <- e
	}()
	r.Logs("sessions are being ended", "--listener web")
	echoes(t, clients[0], "answered")
	if e := <-ended; e.Touched != 1 || e.Ended != 1 {
		t.Errorf("once it has its answer: %+v", e)
	}
	r.wantEnd(t, clients[0], "listener=web", "ended by an operator")

	go func() {
		e, _ := r.EndSessions(t.Context(), admin.EndQuery{All: true, Now: true, Over: time.Hour}, "test")
		ended <- e
	}()
	r.Logs("sessions are being ended", "--all", "how=now")
	if stopped := r.StopEnding("test"); stopped.Requests != 1 || stopped.Kept != 1 {
		t.Errorf("%+v", stopped)
	}
	if e := <-ended; e.Touched != 1 || e.Stopped != 1 {
		t.Errorf("spread over an hour, and called off: %+v", e)
	}
	gently.ThenReset = true
	if e := end(gently); e.Touched != 1 || e.Ended != 1 {
		t.Errorf("after the grace: %+v", e)
	}
	_ = clients[1].SetDeadline(time.Now().Add(patience))
	if err := gone(t, clients[1]); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}
