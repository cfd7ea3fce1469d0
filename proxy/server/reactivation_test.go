package server_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// rest ends the time of each alarm that was set, and returns how many were still active.
func (c *clock) rest() (n int) {
	for {
		select {
		case a := <-c.set:
			if a.over() {
				n++
			}
		default:
			return n
		}
	}
}

// TestReturning: a listener or endpoint is removed and comes back before its sessions have ended.
// It is the same object again: its sessions and its counts continue.
func TestReturning(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	at := "127.0.0.1:" + sockets.Port(t)
	file := func(listeners, upstreams string) string {
		return fmt.Sprintf("listeners: [{name: other, bind: %q, upstream: other}%s]\nupstreams: [{name: other, endpoints: [%q]}%s]", "127.0.0.1:0", listeners, b, upstreams)
	}
	l := fmt.Sprintf(`, {name: l, bind: %q, upstream: u}`, at)
	u := func(endpoints string) string {
		return fmt.Sprintf(`, {name: u, drain_timeout: 1h, endpoints: [%s]}`, endpoints)
	}
	both := fmt.Sprintf(`{address: %q, name: a, connections: 2}, {address: %q, name: b, backup: true}`, a, b)
	for name, without := range map[string]string{
		"an endpoint":              file(l, u(fmt.Sprintf(`{address: %q, name: b, backup: true}`, b))),
		"a listener":               file("", u(both)),
		"a listener and upstreams": file("", ""),
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, file(l, u(both)))
			times := stopClock(r)
			c := client(t, at)
			line(t, c)
			r.Until("the session is counted", func() bool { return r.Endpoint("u", "a").Active == 1 })
			r.Reload(without)
			echoes(t, c, "while it is gone")
			r.Reload(file(l, u(both)))
			times.rest()
			echoes(t, c, "when it is back")
			second := client(t, at)
			line(t, second)
			e := r.Endpoint("u", "a")
			if e.State != "up" || e.Active != 2 || e.Total != 2 {
				t.Errorf("the endpoint is %+v, want one that is up with both sessions", e)
			}
			s := r.Status()
			for i := range s.Upstreams {
				if s.Upstreams[i].Name == "u" && len(s.Upstreams[i].Endpoints) != 2 {
					t.Errorf("the endpoints are %+v", s.Upstreams[i].Endpoints)
				}
			}
			// A second removal drains as the first would have.
			r.Reload(without)
			echoes(t, c, "while it is gone again")
			if times.rest() == 0 {
				t.Error("no timer is set")
			}
			for _, conn := range []interface {
				SetReadDeadline(time.Time) error
				Read([]byte) (int, error)
			}{c, second} {
				_ = conn.SetReadDeadline(time.Now().Add(patience))
				if _, err := conn.Read(make([]byte, 100)); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%v, want a reset", err)
				}
			}
		})
	}
}
